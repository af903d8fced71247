// What became of a run, in one sentence with its three proofs.

const LEVELS = {
  good: { word: "good", icon: "M4 11l4 4 8-9" },
  fair: { word: "fair", icon: "M10 5v6M10 14.2v.6" },
  bad: { word: "bad", icon: "M5.5 5.5l9 9M14.5 5.5l-9 9" },
  unknown: { word: "unknown", icon: "M7.3 7.6a2.7 2.7 0 1 1 4 2.4c-.9.5-1.3 1-1.3 2M10 14.6v.4" },
};

const WARNING_WORDS = { good: "note", fair: "warning", bad: "problem", unknown: "note" };

/** The level by icon, word and colour. */
function levelBadge(level, words = null) {
  const known = LEVELS[level] ? level : "unknown";
  const icon = draw("svg", { viewBox: "0 0 20 20", width: 18, height: 18, "aria-hidden": "true" },
    draw("path", { d: LEVELS[known].icon }));
  return make("span", { class: `badge ${known}` }, icon, words?.[known] ?? LEVELS[known].word);
}

function drawVerdict(host, run, payload) {
  const { verdict } = run;
  host.append(
    make("p", { class: "eyebrow" }, payload.runs.length > 1 ? null : named(run.name), make("span", { class: "tag" }, prose(run.state)), run.headline ? prose(run.headline) : null),
    make("p", { class: `verdict ${verdict.level}` }, levelBadge(verdict.level), prose(verdict.sentence)),
    make("ul", { class: "proofs" }, verdict.proofs.map((proof) => make("li", { class: `proof ${proof.level}` },
      make("h3", {}, prose(proof.question)), levelBadge(proof.level), prose(proof.answer, "p"),
      sparkline(run, proof.metric, payload)))));
  if (!run.warnings.length) return;
  host.append(make("h3", {}, "Warnings"), make("ul", { class: "warnings" }, run.warnings.map((warning) =>
    make("li", {}, levelBadge(warning.level, WARNING_WORDS), make("div", {}, prose(warning.text, "strong"), prose(warning.reason, "p"))))));
}

/** The metric of a proof as a small line with its first and last value. */
function sparkline(run, key, payload) {
  const points = key && pointsOf(run, key, "epoch");
  const known = points ? Array.from(points.ys, (y, i) => [points.xs[i], y]).filter((point) => point.every(Number.isFinite)) : [];
  if (known.length < 2) return null;
  const [left, right] = extent([known.map(([x]) => x)]);
  const [low, high] = extent([known.map(([, y]) => y)]);
  const toX = (x) => 2 + (196 * (x - left)) / (right - left || 1);
  const toY = (y) => 36 - (32 * (y - low)) / (high - low || 1);
  const { title = key, unit = "" } = payload.metrics[key] ?? {};
  return make("div", { class: "spark" },
    draw("svg", { viewBox: "0 0 200 40", preserveAspectRatio: "none", "aria-hidden": "true" },
      draw("path", { d: pathThrough(known.map(([x]) => x), known.map(([, y]) => y), toX, toY, 400) })),
    make("p", {}, prose(title), make("span", {}, `${readable(known[0][1], 3)} → ${withUnit(known.at(-1)[1], unit, 3)}`)));
}
