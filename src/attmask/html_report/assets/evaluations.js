// All measured numbers in one table; each opens its card.

/** A value and its spread with as many places as two digits of the spread need. */
function spreadText({ value, spread, unit }) {
  if (!Number.isFinite(value) || !(spread > 0)) return inColumn(value, unit);
  const places = Math.min(Math.max(0, 1 - Math.floor(Math.log10(spread))), 6);
  return `${decimal(value, places)} ± ${decimal(spread, places)}`;
}

function drawEvaluations(host, payload) {
  const { rows, cards } = payload.evaluations;
  if (!rows.length) return host.append(empty("No evaluation of these runs was found.", "attmask evaluate RUN knn --data IMAGES"));
  const columns = [
    { title: "run", value: (row) => row.run, text: (row) => row.run, cell: (row) => named(row.run) },
    { title: "task", value: (row) => row.task, text: (row) => row.task, cell: (row) => named(row.task) },
    ...(new Set(rows.map((row) => row.images)).size > 1 ? [{ title: "images", value: (row) => row.images, text: (row) => row.images, cell: (row) => named(row.images) }] : []),
    { title: "metric", value: (row) => row.title, text: (row) => row.title, cell: (row) => prose(row.title) },
    { title: "value", numeric: true, value: (row) => row.value, text: spreadText, cell: (row) => valueButton(row, cards[row.card]) },
    { title: "unit", value: (row) => row.unit, text: (row) => row.unit, cell: (row) => prose(row.unit) },
  ];
  const table = sortable({ label: "Table of evaluations", columns, rows, kind: "wide evaluations" });
  const count = make("span", { class: "muted rows", role: "status" });
  const text = make("input", { type: "search", placeholder: "run, task or metric", spellcheck: "false" });
  const filter = () => {
    const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const some = rows.filter((row) => words.every((word) => [row.run, row.task, row.images, row.title, row.key].join(" ").toLowerCase().includes(word)));
    table.show(some);
    count.textContent = `${some.length} of ${rows.length} rows`;
  };
  text.addEventListener("input", filter);
  const cells = () => table.inOrder().map((row) => columns.map((column) => ({ text: column.text(row), bold: column.numeric && row.best })));
  host.append(make("div", { class: "controls" }, make("label", { class: "dropdown" }, make("span", {}, "Filter"), " ", text), count,
    make("div", { class: "buttons" }, copyButton("Copy as Markdown", () => asMarkdown(columns, cells())), copyButton("Copy as LaTeX", () => asLatex(columns, cells())))),
    table.box, make("p", { class: "hint" }, "★ marks the best value of a task, its images and a metric. Click a value to see how it was measured and the command that reproduces it."));
  filter();
}

function valueButton(row, card) {
  return button([row.best ? make("span", { "aria-hidden": "true" }, "★ ") : null, spreadText(row), row.best ? make("span", { class: "unseen" }, " best") : null],
    () => openCard(row, card), { class: `value-button${row.best ? " best" : ""}`, "aria-haspopup": "dialog" });
}

/** Everything about one number, in a dialog. */
function openCard(row, card) {
  const title = freshId("card");
  const close = button("Close", () => dialog.close());
  const dialog = make("dialog", { class: "card", "aria-labelledby": title },
    make("div", { class: "card-head" }, make("h2", { id: title }, prose(row.title)), close),
    make("p", { class: "card-value" }, spreadText(row), row.unit ? [" ", prose(row.unit)] : null),
    make("p", { class: "muted" }, named(row.task), " of ", named(row.run), " · ", make("code", {}, row.key),
      typeof row.higher === "boolean" ? ` · ${row.higher ? "higher" : "lower"} is better` : ""),
    Object.entries(card.groups).map(([group, facts]) => [make("h3", {}, prose(group)), make("dl", {}, Object.entries(facts).map(([name, value]) =>
      [make("dt", {}, prose(name)), make("dd", {}, prose(value))]))]),
    make("h3", {}, "Command"), commandLine(card.command));
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
}
