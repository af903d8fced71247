// The nearest images of some images, before training, now, and in other runs.

/** The column "now" of other runs that have the same images. */
function otherColumns(run, payload) {
  const names = run.neighbours.probes.map((i) => run.map.names[i]);
  return payload.runs.filter((other) => other !== run && other.map && other.neighbours).flatMap((other) => {
    const rows = names.map((name) => other.neighbours.probes.findIndex((i) => other.map.names[i] === name));
    const now = other.neighbours.columns.find(({ title }) => title === "now");
    if (!now || rows.includes(-1)) return [];
    return [{ title: other.name, map: other.map,
      indices: rows.map((row) => now.indices[row]), similarity: rows.map((row) => now.similarity[row]) }];
  });
}

function drawNeighbours(host, run, payload) {
  if (!run.map || !run.neighbours || !run.neighbours.probes.length) {
    return host.append(empty("This run has no embeddings of images to compare.", `attmask report ${run.folder}`));
  }
  const { map } = run;
  const columns = [...run.neighbours.columns.map((column) => ({ ...column, map })), ...otherColumns(run, payload)];
  const heads = columns.map(({ title }) => make("th", { scope: "col" }, named(title)));
  const rows = run.neighbours.probes.map((probe, row) => make("tr", {},
    make("th", { scope: "row" }, make("div", { class: "probe" }, thumbnail(map, probe, 56), named(map.names[probe]), classOf(map, probe) ? named(classOf(map, probe), "muted") : null)),
    columns.map((column) => withSprite(make("td", {}, make("div", { class: "strip" }, column.indices[row].map((i, place) => {
      const [own, other] = [classOf(map, probe), classOf(column.map, i)];
      const same = own !== null && other !== null ? own === other : null;
      const verdict = same === null ? "" : same ? "same class" : "different class";
      return make("span", { class: `near ${same === null ? "" : same ? "same" : "other"}`, title: `${column.map.names[i]}${other ? `\n${other}` : ""}` },
        thumbnail(column.map, i, 48),
        make("span", {}, same === null ? "" : make("span", { "aria-hidden": "true" }, same ? "✓ " : "✕ "), decimal(column.similarity[row][place], 2),
          make("span", { class: "unseen" }, ` ${verdict}`)));
    }))), column.map))));
  const table = make("table", { class: "neighbours" }, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "image"), heads)), make("tbody", {}, rows));
  host.append(make("p", { class: "hint" }, "The nearest images by cosine similarity", map.labels ? "; ✓ same class, ✕ different class." : "."),
    withSprite(scrolling(table, "Nearest neighbours", "wide"), map));
}
