// One line chart: lines over a shared view (range, axis, smoothing), a cursor, and a readout.

const MARGIN = { left: 48, right: 14, top: 10, bottom: 38 };

/** A chart of `lines()`: [{name, style, xs, ys}], where `view` has range, log and smoothing. */
class Chart {
  constructor({ title, unit, height, lines, levels = [], view, isLog = () => false, onzoom }) {
    Object.assign(this, { title, unit, height, lines, levels, view, isLog, onzoom });
    this.clip = freshId("clip");
    this.svg = draw("svg", { "aria-hidden": "true", height });
    this.plot = make("div", {
      class: "plot", tabindex: "0", role: "application",
      "aria-label": `${title}. Left and right arrow keys move the cursor, plus and minus zoom.`,
    }, this.svg);
    this.plot.style.height = `${height}px`;
    this.readout = make("div", { class: "readout", "aria-live": "polite" });
    this.cursor = null;
    this.listen();
  }

  /** What there is to draw now: the shown lines, and the ranges of both axes. */
  measure() {
    this.width = Math.max(this.plot.clientWidth, 160);
    this.drawn = this.lines().map((line) => ({ ...line, shown: smoothed(line.ys, this.view.smoothing) }));
    this.log = this.isLog();
    const whole = extent(this.drawn.map(({ xs, ys }) => xs.filter((_, i) => Number.isFinite(ys[i]))));
    this.whole = whole ?? [0, 1];
    let [left, right] = this.view.range ?? this.whole;
    if (left === right) [left, right] = [left - 0.5, right + 0.5];
    const inside = this.drawn.map(({ xs, shown }) =>
      shown.filter((y, i) => xs[i] >= left && xs[i] <= right && (!this.log || y > 0)));
    const levels = this.levels.map(({ value }) => value).filter((y) => Number.isFinite(y) && (!this.log || y > 0));
    let [low, high] = extent([...inside, levels]) ?? [0, 1];
    if (low === high) {
      const room = Math.abs(low) / 2;
      [low, high] = this.log ? [low / 2, high * 2] : room ? [low - room, high + room] : [0, 1];
    }
    if (!this.log) {
      const room = 0.07 * (high - low);
      low = low >= 0 && low - room < 0 ? 0 : low - room;
      high += room;
    }
    this.ranges = { left, right, low, high };
    const span = this.width - MARGIN.left - MARGIN.right;
    const rise = this.height - MARGIN.top - MARGIN.bottom;
    const up = this.log ? Math.log : (y) => y;
    this.toX = (x) => MARGIN.left + (span * (x - left)) / (right - left);
    this.fromX = (pixel) => left + ((pixel - MARGIN.left) / span) * (right - left);
    this.toY = (y) => MARGIN.top + rise * (1 - (up(y) - up(low)) / (up(high) - up(low)));
    this.fromY = (pixel) => {
      const share = 1 - (pixel - MARGIN.top) / rise;
      return this.log ? low * (high / low) ** share : low + share * (high - low);
    };
  }

  draw() {
    this.measure();
    const { width, height, svg } = this;
    svg.setAttribute("width", width);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const box = { x: MARGIN.left - 5, y: 0, width: width - MARGIN.left - MARGIN.right + 10, height: height - MARGIN.bottom + 4 };
    const lines = draw("g", { "clip-path": `url(#${this.clip})` });
    for (const { style, xs, ys, shown } of this.drawn) {
      const through = (values) => {
        const possible = this.log ? values.map((y) => (y > 0 ? y : NaN)) : values;
        return pathThrough(xs, possible, this.toX, this.toY, width * 2);
      };
      if (this.view.smoothing > 1) lines.append(draw("path", { class: `line faint ${style}`, d: through(ys) }));
      lines.append(draw("path", { class: `line ${style}`, d: through(shown) }));
      const finite = shown.reduce((count, y) => count + Number.isFinite(y), 0);
      if (finite <= 12) {
        shown.forEach((y, i) => Number.isFinite(y) && (!this.log || y > 0) &&
          lines.append(draw("circle", { class: `dot ${style}`, cx: this.toX(xs[i]), cy: this.toY(y), r: 3 })));
      }
    }
    this.mark = draw("g", { class: "cursor" });
    this.band = draw("rect", { class: "band", y: MARGIN.top, height: height - MARGIN.top - MARGIN.bottom, width: 0 });
    svg.replaceChildren(
      draw("defs", {}, draw("clipPath", { id: this.clip }, draw("rect", box))),
      this.axes(), lines, ...this.references(), this.mark, this.band);
    this.say();
  }

  axes() {
    const { left, right, low, high } = this.ranges;
    const group = draw("g", { class: "axes" });
    const ys = (this.log ? logTicksBetween : ticksBetween)(low, high, this.height / 48);
    const bottom = this.height - MARGIN.bottom;
    for (const y of ys) {
      const at = this.toY(y);
      group.append(draw("line", { x1: MARGIN.left, x2: this.width - MARGIN.right, y1: at, y2: at }),
        draw("text", { x: MARGIN.left - 7, y: at + 4, "text-anchor": "end" }, tickText(y, this.log ? y : ys[1] - ys[0] || 1)));
    }
    const xs = ticksBetween(left, right, this.width / 90);
    for (const x of xs) {
      group.append(draw("text", { x: this.toX(x), y: bottom + 17, "text-anchor": "middle" }, tickText(x, xs[1] - xs[0] || 1)));
    }
    const middle = (MARGIN.left + this.width - MARGIN.right) / 2;
    group.append(draw("text", { x: middle, y: bottom + 33, "text-anchor": "middle" }, this.view.axis));
    group.append(draw("line", { class: "base", x1: MARGIN.left, x2: this.width - MARGIN.right, y1: bottom, y2: bottom }));
    return group;
  }

  /** Lines at reference values; a label that would hide another stands at the other end. */
  references() {
    const known = this.levels.filter(({ value }) => Number.isFinite(value) && (!this.log || value > 0));
    const right = this.width - MARGIN.right;
    let taken = Infinity;
    return known.sort((a, b) => a.value - b.value).map(({ value, title }) => {
      const y = this.toY(value);
      const place = taken - y < 14 ? { x: MARGIN.left + 4 } : { x: right, "text-anchor": "end" };
      if (place.x === right) taken = y;
      return draw("g", { class: "level" }, draw("line", { x1: MARGIN.left, x2: right, y1: y, y2: y }),
        draw("text", { ...place, y: y - 4 }, title.length > 40 ? `${title.slice(0, 39)}…` : title));
    });
  }

  /** Put the cursor at x, or away with null. */
  point(x) {
    this.cursor = x;
    this.say();
  }

  /** Values at the cursor, or the last ones in the range. */
  say() {
    const { left, right } = this.ranges;
    const at = this.cursor ?? right;
    const found = this.drawn.map(({ xs, ys }) => nearest(xs, ys, at));
    const places = this.drawn.map(({ xs }, i) => xs[found[i]]).filter(Number.isFinite);
    const place = places[nearest(places, places, at)] ?? at;
    const marks = [draw("line", { x1: this.toX(place), x2: this.toX(place), y1: MARGIN.top, y2: this.height - MARGIN.bottom })];
    const items = this.drawn.map(({ name, style, xs, ys, shown }, run) => {
      const i = found[run];
      const [first, last] = extent([xs.filter((_, j) => Number.isFinite(ys[j]))]) ?? [NaN, NaN];
      const room = 0.01 * (right - left);
      const known = i >= 0 && (this.cursor === null || (place >= first - room && place <= last + room));
      if (known && (!this.log || shown[i] > 0)) marks.push(draw("circle", { class: `dot ${style}`, cx: this.toX(xs[i]), cy: this.toY(shown[i]), r: 4 }));
      return make("span", { class: "value" }, swatch(style), named(name), make("b", {}, known ? [inColumn(ys[i], this.unit), this.unit.length > 6 ? "" : ` ${this.unit}`] : "–"));
    });
    this.mark.replaceChildren(...(this.cursor === null ? [] : marks));
    const where = this.cursor === null ? "latest" : `${this.view.axis === "hours" ? "hour" : this.view.axis} ${readable(place, 3)}`;
    this.readout.replaceChildren(make("span", { class: "where" }, where), ...items);
  }

  /** Keep the range inside of what there is; the whole of it is no zoom. */
  zoom(left, right) {
    const [first, last] = this.view.whole ?? this.whole;
    left = Math.max(left, first);
    right = Math.min(right, last);
    if (right - left < (last - first) * 1e-3) return;
    this.onzoom(left <= first && right >= last ? null : [left, right]);
  }

  zoomBy(factor, around = null) {
    const { left, right } = this.ranges;
    const middle = around ?? this.cursor ?? (left + right) / 2;
    this.zoom(middle - (middle - left) * factor, middle + (right - middle) * factor);
  }

  listen() {
    const { plot } = this;
    const at = (event) => event.clientX - plot.getBoundingClientRect().left;
    let from = null;
    plot.addEventListener("pointermove", (event) => {
      if (from === null) return this.point(Math.min(Math.max(this.fromX(at(event)), this.ranges.left), this.ranges.right));
      const [left, right] = [Math.min(from, at(event)), Math.max(from, at(event))];
      this.band.setAttribute("x", Math.max(left, MARGIN.left));
      this.band.setAttribute("width", Math.max(right - Math.max(left, MARGIN.left), 0));
    });
    plot.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.pointerType === "touch" || event.target.closest("[role=slider]")) return;
      from = at(event);
      plot.setPointerCapture(event.pointerId);
    });
    plot.addEventListener("pointerup", (event) => {
      const [start, end] = [from, at(event)];
      from = null;
      this.band?.setAttribute("width", 0);
      if (start !== null && Math.abs(end - start) > 8) this.zoom(this.fromX(Math.min(start, end)), this.fromX(Math.max(start, end)));
    });
    plot.addEventListener("pointercancel", () => ((from = null), this.band?.setAttribute("width", 0)));
    plot.addEventListener("pointerleave", () => from === null && document.activeElement !== plot && this.point(null));
    plot.addEventListener("dblclick", () => this.onzoom(null));
    plot.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      this.zoomBy(event.deltaY > 0 ? 1.25 : 0.8, this.fromX(at(event)));
    }, { passive: false });
    plot.addEventListener("keydown", (event) => this.press(event));
  }

  press(event) {
    if (event.target !== this.plot || event.ctrlKey || event.metaKey || event.altKey) return;
    const { left, right } = this.ranges;
    const stops = [...new Set(this.drawn.flatMap(({ xs, ys }) => Array.from(xs).filter((x, i) => x >= left && x <= right && Number.isFinite(ys[i]))))].sort((a, b) => a - b);
    const jump = event.shiftKey ? 10 : 1;
    const here = this.cursor === null ? stops.length - 1 : nearest(stops, stops, this.cursor);
    const moves = { ArrowLeft: here - jump, ArrowRight: here + jump, Home: 0, End: stops.length - 1 };
    if (event.key in moves && stops.length) this.point(stops[Math.min(Math.max(moves[event.key], 0), stops.length - 1)]);
    else if (event.key === "+" || event.key === "=") this.zoomBy(0.7);
    else if (event.key === "-") this.zoomBy(1 / 0.7);
    else if (event.key === "0") this.onzoom(null);
    else if (event.key === "Escape") this.point(null);
    else return;
    event.preventDefault();
  }
}

/** A short piece of a run's line, as a key to the charts. */
const swatch = (style) =>
  draw("svg", { class: "swatch", viewBox: "0 0 26 8", width: 26, height: 8, "aria-hidden": "true" },
    draw("path", { class: `line ${style}`, d: "M0 4H26" }));
