// The line to drag on the accuracy chart: who reaches this value, and how many epochs earlier.

/** The metric of the large chart: that of the comparison, or the first accuracy. */
function leadMetric(payload) {
  const logged = (key) => payload.runs.some((run) => run.series[key]);
  if (payload.comparison && logged(payload.comparison.metric)) return payload.comparison.metric;
  return Object.keys(payload.metrics).find((key) => payload.metrics[key].group === "accuracy" && logged(key)) ?? null;
}

const lastFinite = (values) => values.findLast((value) => Number.isFinite(value)) ?? null;

function addSavingLine(figure, chart, payload, key, view) {
  const baseline = payload.runs.find(({ name }) => name === payload.comparison?.baseline);
  const points = baseline && pointsOf(baseline, key, "epoch");
  const start = points ? lastFinite(points.ys) : null;
  if (start === null) return;
  const { unit, higher } = payload.metrics[key];
  const epochs = baseline.epochs ?? lastFinite(points.xs);
  const all = extent(payload.runs.filter((run) => run.series[key]).map((run) => pointsOf(run, key, "epoch").ys));
  const room = 0.05 * (all[1] - all[0]);
  const [low, high] = [all[0] - room, all[1] + room];
  let value = start;

  const handle = make("div", {
    class: "saving-line", role: "slider", tabindex: "0", "aria-orientation": "vertical",
    "aria-label": "Value to reach", "aria-valuemin": low.toPrecision(5), "aria-valuemax": high.toPrecision(5),
  }, make("span", { class: "grip", "aria-hidden": "true" }));
  const said = make("ul", { class: "savings", "aria-live": "polite" });
  const title = make("p", { class: "savings-title" });

  const place = () => {
    if (!chart.toY) return;
    const at = chart.toY(value);
    handle.hidden = !(at >= MARGIN.top - 1 && at <= chart.height - MARGIN.bottom + 1);
    handle.style.transform = `translateY(${at - 12}px)`;
  };
  const set = (wanted) => {
    value = Math.min(Math.max(wanted, low), high);
    handle.setAttribute("aria-valuenow", value.toPrecision(5));
    handle.setAttribute("aria-valuetext", withUnit(value, unit));
    handle.firstChild.textContent = withUnit(value, unit);
    title.replaceChildren("Epochs to reach ", make("b", {}, withUnit(value, unit)),
      make("span", { class: "muted" }, value === start ? ", the final value of " : ", compared with the epochs of ", named(baseline.name), ". Drag the dashed line to change it."));
    said.replaceChildren(...payload.runs.filter((run) => run.series[key]).map((run) => {
      const { xs, ys } = pointsOf(run, key, "epoch");
      const epoch = firstEpochReaching(xs, ys, value, higher !== false);
      return make("li", {}, swatch(lineStyle(run)), named(run.name), make("span", {}, savingSentence(epoch, epochs)));
    }));
    place();
  };
  const drawPlain = chart.draw.bind(chart);
  chart.draw = () => (drawPlain(), place());

  const byPointer = (event) => set(chart.fromY(event.clientY - chart.plot.getBoundingClientRect().top));
  handle.addEventListener("pointerdown", (event) => (event.stopPropagation(), handle.focus(), handle.setPointerCapture(event.pointerId)));
  handle.addEventListener("pointermove", (event) => {
    event.stopPropagation();
    if (handle.hasPointerCapture(event.pointerId)) byPointer(event);
  });
  handle.addEventListener("keydown", (event) => {
    const step = (high - low) / 100;
    const moves = { ArrowUp: value + step, ArrowRight: value + step, ArrowDown: value - step, ArrowLeft: value - step,
      PageUp: value + 10 * step, PageDown: value - 10 * step, Home: low, End: high };
    if (!(event.key in moves)) return;
    event.preventDefault();
    set(moves[event.key]);
  });
  chart.plot.append(handle);
  figure.append(make("div", { class: "saving" }, title, said, button("Reset to the baseline's final value", () => set(start))));
  set(start);
}
