// Numbers along an axis.

/** Round numbers between two ends, about as many as asked for. */
function ticksBetween(low, high, wanted) {
  const rough = (high - low) / Math.max(wanted, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => power * factor >= rough * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) ticks.push(i * step);
  return ticks;
}

/** The unit in which so many hours are readable: its letters, and how many of it an hour has. */
function timeUnit(hours) {
  if (hours >= 2) return { letters: "h", inAnHour: 1 };
  return hours >= 2 / 60 ? { letters: "min", inAnHour: 60 } : { letters: "s", inAnHour: 3600 };
}

/** A number of hours for people: "3.2 h", "4.4 min", "12 s". */
function duration(hours) {
  if (!Number.isFinite(hours)) return "–";
  const { letters, inAnHour } = timeUnit(hours);
  return `${readable(hours * inAnHour, 3)} ${letters}`;
}

/** Powers of ten where there are two or more, round numbers otherwise. */
function logTicksBetween(low, high, wanted) {
  const ticks = [];
  for (let power = Math.ceil(Math.log10(low)); 10 ** power <= high; power++) ticks.push(10 ** power);
  return ticks.length >= 2 ? ticks : ticksBetween(low, high, wanted).filter((tick) => tick > 0);
}

/** A number on an axis, with the places that its step needs. */
function tickText(value, step) {
  if (value === 0) return "0";
  if (Math.abs(value) >= 1e5 || Math.abs(value) < 1e-4) {
    return value.toExponential().replace(/(\.\d\d)\d+/, "$1").replace("e+", "e").replaceAll("-", "−");
  }
  const places = Math.max(0, Math.min(5, Math.ceil(-Math.log10(step) - 1e-9)));
  return value.toFixed(places).replace("-", "−");
}

/** The smallest and largest finite number; null without any. */
function extent(lists) {
  let low = Infinity, high = -Infinity;
  for (const values of lists) {
    for (const value of values) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return low <= high && Number.isFinite(low) && Number.isFinite(high) ? [low, high] : null;
}

/** The mean over `width` points around each, leaving gaps where there are gaps. */
function smoothed(values, width) {
  if (width <= 1) return values;
  const half = Math.floor(width / 2);
  const sums = new Float64Array(values.length + 1);
  const counts = new Int32Array(values.length + 1);
  values.forEach((value, i) => {
    const known = Number.isFinite(value);
    sums[i + 1] = sums[i] + (known ? value : 0);
    counts[i + 1] = counts[i] + known;
  });
  return values.map((value, i) => {
    if (!Number.isFinite(value)) return NaN;
    const reach = Math.min(half, i, values.length - 1 - i); // the same to both sides
    const from = i - reach, to = i + reach + 1;
    return (sums[to] - sums[from]) / (counts[to] - counts[from]);
  });
}

/** The index of the finite point next to x in ascending xs. */
function nearest(xs, ys, x) {
  let best = -1;
  let distance = Infinity;
  for (let i = 0; i < xs.length; i++) {
    const away = Math.abs(xs[i] - x);
    if (away < distance && Number.isFinite(ys[i])) (best = i), (distance = away);
  }
  return best;
}

/** A path through the points; of very many, the lowest and highest of each pixel's column. */
function pathThrough(xs, ys, toX, toY, columns) {
  let text = "";
  let pen = "M";
  const put = (i) => {
    text += `${pen}${toX(xs[i]).toFixed(1)} ${toY(ys[i]).toFixed(1)}`;
    pen = "L";
  };
  const every = Math.max(1, Math.floor((2 * xs.length) / columns));
  for (let start = 0; start < xs.length; start += every) {
    let low = -1, high = -1;
    for (let i = start; i < Math.min(start + every, xs.length); i++) {
      if (!Number.isFinite(ys[i]) || !Number.isFinite(xs[i])) continue;
      if (low < 0 || ys[i] < ys[low]) low = i;
      if (high < 0 || ys[i] > ys[high]) high = i;
    }
    if (low < 0) pen = "M";
    else [...new Set([Math.min(low, high), Math.max(low, high)])].forEach(put);
  }
  return text;
}
