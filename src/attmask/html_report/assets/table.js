// Tables that sort: buttons in their heads, numbers by size, missing values last.

/** A table of rows; columns are {title, value(row), cell(row), numeric}. */
function sortable({ label, columns, rows, sorted = null, kind = "" }) {
  const body = make("tbody");
  let order = sorted ?? { column: null, down: false };
  let shown = rows;
  const heads = columns.map((column, i) => {
    const press = button([make("span", {}, column.title), make("span", { class: "arrow", "aria-hidden": "true" })], () => {
      order = { column: i, down: order.column === i ? !order.down : Boolean(column.numeric) };
      update();
    }, { title: column.title });
    return make("th", { scope: "col", class: column.numeric ? "number" : null }, press);
  });
  const compare = (a, b) => {
    const { value } = columns[order.column];
    const [x, y] = [value(a), value(b)];
    const [noX, noY] = [x, y].map((it) => it === null || it === undefined || Number.isNaN(it));
    if (noX || noY) return noX - noY;
    const sign = order.down ? -1 : 1;
    return sign * (typeof x === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true }));
  };
  const inOrder = () => (order.column === null ? shown : [...shown].sort(compare));
  const update = () => {
    heads.forEach((head, i) => head.setAttribute("aria-sort", i !== order.column ? "none" : order.down ? "descending" : "ascending"));
    body.replaceChildren(...inOrder().map((row) => make("tr", {}, columns.map((column, i) =>
      make(i === 0 ? "th" : "td", { scope: i === 0 ? "row" : null, class: column.numeric ? "number" : null }, column.cell(row))))));
  };
  update();
  const table = make("table", {}, make("thead", {}, make("tr", {}, heads)), body);
  const box = scrolling(table, label, kind);
  return { box, inOrder, show: (some) => ((shown = some), update()) };
}

/** A box in which a wide table scrolls by itself. */
const scrolling = (table, label, kind = "") =>
  make("div", { class: `table ${kind}`, tabindex: "0", role: "region", "aria-label": label }, table);

/** A plain table of texts from outside. */
function plainTable(label, titles, rows, kind = "") {
  return scrolling(make("table", {},
    make("thead", {}, make("tr", {}, titles.map((title) => make("th", { scope: "col" }, title instanceof Node ? title : String(title))))),
    make("tbody", {}, rows.map((row) => make("tr", {}, row.map((cell, i) =>
      make(i === 0 ? "th" : "td", { scope: i === 0 ? "row" : null }, cell instanceof Node ? cell : prose(cell))))))), label, kind);
}
