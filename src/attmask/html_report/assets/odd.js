// Images that stand apart, look the same, or cannot be read.

function drawOdd(host, run) {
  const { odd, map } = run;
  if (!odd || !map) return host.append(empty("Outliers and duplicates need the embeddings of images, which this run has not.", `attmask report ${run.folder}`));
  const list = (title, none, items) => make("div", {}, make("h4", {}, title, make("span", { class: "count" }, String(items.length))),
    items.length ? make("ul", { tabindex: "0", "aria-label": title }, items) : make("p", { class: "muted" }, none));
  host.append(withSprite(make("div", { class: "odd" },
    list("Outliers", "No image stands apart.", odd.outliers.map(({ index, score, why }) =>
      make("li", {}, thumbnail(map, index), make("div", {}, named(map.names[index]), prose(why), make("span", { class: "muted" }, `score ${readable(score, 3)}`))))),
    list("Near duplicates", "No two images are nearly the same.", odd.copies.map(({ first, second, score }) =>
      make("li", {}, thumbnail(map, first), thumbnail(map, second),
        make("div", {}, named(map.names[first]), named(map.names[second]), make("span", { class: "muted" }, `cosine ${readable(score, 4)}`))))),
    list("Unreadable files", "Every image could be read.", odd.unreadable.map((name) => make("li", {}, named(name))))), map));
}
