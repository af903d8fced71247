// Several runs side by side: how they differ, what follows, and their last values.

function drawComparison(host, payload) {
  const { comparison, metrics, runs } = payload;
  host.append(make("h3", {}, "Config differences"));
  if (comparison.differences.length) {
    host.append(plainTable("Settings that differ", ["setting", ...runs.map((run) => named(run.name))],
      comparison.differences.map(({ key, values }) => [make("code", {}, key), ...values]), "wide"));
  } else host.append(make("p", {}, "All runs have the same config."));
  if (comparison.sentences.length) {
    host.append(make("ul", { class: "sentences" }, comparison.sentences.map((sentence) => prose(sentence, "li"))));
  }
  host.append(make("h3", {}, "Latest values"));
  const best = Object.fromEntries(comparison.keys.map((key) => {
    const values = comparison.table.map((row) => row.values[key]).filter((value) => Number.isFinite(value));
    const { higher } = metrics[key] ?? {};
    const tells = values.length > 1 && typeof higher === "boolean" && new Set(values).size > 1;
    return [key, tells ? Math[higher ? "max" : "min"](...values) : null];
  }));
  const byName = Object.fromEntries(runs.map((run) => [run.name, run]));
  const columns = [{ title: "run", value: (row) => row.run,
    cell: (row) => make("span", { class: "in-row" }, byName[row.run] ? swatch(lineStyle(byName[row.run])) : null, named(row.run),
      row.run === comparison.baseline ? make("span", { class: "tag" }, "baseline") : null) }];
  for (const key of comparison.keys) {
    const { title = key, unit = "" } = metrics[key] ?? {};
    columns.push({ title: unit ? `${title}, ${unit}` : title, numeric: true, value: (row) => row.values[key] ?? null,
      cell: (row) => valueCell(inColumn(row.values[key] ?? null, unit), row.values[key] === best[key] && best[key] !== null) });
  }
  host.append(sortable({ label: "Latest values of the runs", columns, rows: comparison.table, kind: "wide" }).box);
}

/** A number, with a star if it is the best of its column. */
function valueCell(text, best) {
  if (!best) return text;
  return make("b", { class: "best" }, make("span", { "aria-hidden": "true" }, "★ "), text, make("span", { class: "unseen" }, " best"));
}
