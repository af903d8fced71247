// The curves of all runs: small multiples by group over one shared view.

const GROUPS = ["accuracy", "quality", "loss", "health", "objects", "schedule", "speed"];
const CLOSED = new Set(["schedule", "speed"]);
const AXES = [["epoch", "epoch"], ["hours", "hours"], ["step", "step"]];
const lineStyle = (run) => `run-${run.number % 8} dash-${Math.floor(run.number / 8) % 3}`;

/** The points of a run's metric along the chosen axis. */
function pointsOf(run, key, axis) {
  const series = run.series[key];
  if (!series) return null;
  run.points ??= new Map();
  const at = `${axis} ${key}`;
  if (!run.points.has(at)) {
    const xs = Float64Array.from(decode(run.axes[series.axis][axis]));
    run.points.set(at, { xs, ys: Float64Array.from(decode(series.values)) });
  }
  return run.points.get(at);
}

/** The metrics that runs have, in groups. */
function groupsOf(payload) {
  const known = Object.keys(payload.metrics).filter((key) => payload.runs.some((run) => run.series[key]));
  const names = [...new Set([...GROUPS, ...known.map((key) => payload.metrics[key].group)])];
  return names.map((name) => [name, known.filter((key) => payload.metrics[key].group === name)]).filter(([, keys]) => keys.length);
}

function drawCurves(host, payload) {
  const groups = groupsOf(payload);
  if (!groups.length) return host.append(empty("No metrics are logged yet.", "attmask resume RUN"));
  const view = { axis: "epoch", range: null, whole: null, smoothing: 1, log: false, shown: new Set(payload.runs) };
  const charts = new Map(); // by figure; only those in sight are drawn
  const visible = new Set();
  const linesOf = (key) => () => payload.runs.filter((run) => view.shown.has(run) && run.series[key])
    .map((run) => ({ name: run.name, style: lineStyle(run), ...pointsOf(run, key, view.axis) }));
  const onzoom = (range) => ((view.range = range), update());

  let waiting = false;
  const update = () => {
    reset.disabled = view.range === null;
    charts.forEach((chart) => (chart.stale = true));
    if (!waiting) requestAnimationFrame(() => ((waiting = false), visible.forEach(drawStale)));
    waiting = true;
  };
  const drawStale = (figure) => {
    const chart = charts.get(figure);
    if (chart.stale !== false && figure.isConnected && chart.plot.clientWidth) (chart.stale = false), chart.draw();
  };
  document.addEventListener("drawall", () => charts.forEach((chart, figure) => ((chart.stale = true), drawStale(figure))));
  const sight = new IntersectionObserver((entries) => entries.forEach(({ target, isIntersecting }) => {
    if (isIntersecting) visible.add(target), drawStale(target);
    else visible.delete(target);
  }), { rootMargin: "300px" });
  const widths = new ResizeObserver((entries) => entries.forEach(({ target }) => {
    const figure = target.closest("figure");
    const chart = charts.get(figure);
    if (chart.width && chart.width !== Math.max(target.clientWidth, 160)) {
      chart.stale = true;
      if (visible.has(figure)) drawStale(figure);
    }
  }));
  const add = (key, height) => {
    const { title, unit } = payload.metrics[key];
    const isLog = () => view.log && payload.metrics[key].group === "loss";
    const many = payload.runs.length > 1;
    const levels = payload.runs.flatMap((run) => (run.levels ?? []).filter(({ metric }) => metric === key)
      .map((level) => ({ ...level, title: many ? `${level.title}, ${run.name}` : level.title })));
    const once = levels.filter((level, i) => levels.findIndex(({ value }) => value === level.value) === i);
    if (once.length < levels.length || once.length === 1) once.forEach((level) => (level.title = level.title.split(", ")[0]));
    const chart = new Chart({ title, unit, height, lines: linesOf(key), levels: once, view, isLog, onzoom });
    const figure = make("figure", { class: "chart" },
      make("figcaption", { title }, prose(title), unit ? make("span", { class: "unit" }, unit) : null), chart.plot, chart.readout);
    chart.readout.style.minHeight = `${1.55 * (1 + Math.ceil(payload.runs.length / 2))}em`;
    charts.set(figure, chart);
    sight.observe(figure);
    widths.observe(chart.plot);
    return { figure, chart };
  };

  const reset = button("Reset zoom", () => onzoom(null), { disabled: true });
  const zoomAll = (factor) => {
    const xs = payload.runs.flatMap((run) => run.axes.map((axis) => decode(axis[view.axis])));
    const [first, last] = extent(xs.map((list) => list.filter(Number.isFinite))) ?? [0, 1];
    const [left, right] = view.range ?? [first, last];
    const middle = (left + right) / 2, half = Math.max(((right - left) / 2) * factor, (last - first) * 5e-4);
    const range = [Math.max(first, middle - half), Math.min(last, middle + half)];
    onzoom(range[0] <= first && range[1] >= last ? null : range);
  };
  const runs = make("fieldset", { class: "runs" }, make("legend", {}, "Runs"), payload.runs.map((run) => {
    const box = make("input", { type: "checkbox", checked: true });
    box.addEventListener("change", () => (view.shown[box.checked ? "add" : "delete"](run), update()));
    return make("label", {}, box, swatch(lineStyle(run)), named(run.name));
  }));
  const logarithmic = make("input", { type: "checkbox" });
  logarithmic.addEventListener("change", () => ((view.log = logarithmic.checked), update()));
  host.append(make("div", { class: "controls" },
    choice("x-axis", AXES, "epoch", (axis) => ((view.axis = axis), (view.range = null), charts.forEach((chart) => (chart.cursor = null)), update())),
    dropdown("Smoothing", [["1", "none"], ["5", "5 points"], ["15", "15 points"], ["45", "45 points"]], "1",
      (width) => ((view.smoothing = Number(width)), update())),
    make("label", { class: "check" }, logarithmic, "Log scale for losses"),
    make("div", { class: "buttons", role: "group", "aria-label": "Zoom" },
      button("−", () => zoomAll(1.6), { "aria-label": "Zoom out" }), button("+", () => zoomAll(0.6), { "aria-label": "Zoom in" }), reset)),
    payload.runs.length > 1 ? runs : make("span"));
  host.append(make("p", { class: "hint" }, "Drag across a chart to zoom in, double-click to reset. Ctrl and the wheel zoom too. The arrow keys move the cursor of a focused chart."));

  const lead = leadMetric(payload);
  if (lead) {
    const { figure, chart } = add(lead, 320);
    figure.classList.add("lead");
    chart.readout.style.minHeight = "1.6em";
    host.append(figure);
    addSavingLine(figure, chart, payload, lead, view);
  }
  const shownFigures = new Map();
  const blocks = groups.map(([name, keys]) => {
    const figures = keys.filter((key) => key !== lead).map((key) => {
      const { figure } = add(key, 190);
      shownFigures.set(key, figure);
      return figure;
    });
    if (!figures.length) return null;
    return make("details", { class: "group", open: !CLOSED.has(name) },
      make("summary", {}, make("h3", {}, name), make("span", { class: "count" }, String(figures.length))),
      make("div", { class: "multiples" }, figures));
  });
  host.append(chooser(groups, payload, shownFigures), ...blocks.filter(Boolean));
}

/** Check boxes that show and hide charts. */
function chooser(groups, payload, figures) {
  return make("details", { class: "chooser" }, make("summary", {}, "Choose metrics"),
    make("div", { class: "choices" }, groups.map(([name, keys]) =>
      make("fieldset", {}, make("legend", {}, name), keys.filter((key) => figures.has(key)).map((key) => {
        const box = make("input", { type: "checkbox", checked: true });
        box.addEventListener("change", () => (figures.get(key).hidden = !box.checked));
        return make("label", {}, box, prose(payload.metrics[key].title));
      })))));
}
