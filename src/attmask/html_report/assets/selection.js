// The map with its controls, its legend, and the list of the selected files.

const LISTED = 200;
const NO_HOVER = "Point at an image to see its name.";
const NO_SELECTION = "Draw around images with the rectangle or the lasso, or search by name or class.";

function drawMap(host, run) {
  const { map } = run;
  if (!map || !map.names.length) return host.append(empty("This run has no embeddings for a map.", `attmask report ${run.folder}`));
  const legend = legendOf(map);
  const hovered = make("p", { class: "hovered", "aria-live": "polite" }, NO_HOVER);
  const count = make("p", { class: "count", "aria-live": "polite" }, "No image selected");
  const list = make("ul", { class: "files", tabindex: "0", "aria-label": "Selected files" }, make("li", { class: "muted" }, NO_SELECTION));
  let files = [];
  const drawing = new EmbeddingMap(map, legend, {
    onhover: (i) => {
      if (i === drawing.hovered) return;
      drawing.hovered = i;
      drawing.draw();
      hovered.replaceChildren(...(i < 0 ? [NO_HOVER] : [thumbnail(map, i, 32), named(map.names[i]), classOf(map, i) ? named(classOf(map, i), "muted") : ""]));
    },
    onselect: (chosen) => {
      files = chosen.map((i) => map.names[i]);
      count.textContent = files.length ? `${files.length} of ${map.names.length} images selected` + (files.length > LISTED ? `, the first ${LISTED} are listed` : "") : "No image selected";
      list.replaceChildren(...chosen.length ? [] : [make("li", { class: "muted" }, NO_SELECTION)], ...chosen.slice(0, LISTED).map((i) => make("li", {}, thumbnail(map, i, 28), named(map.names[i]))));
      copying.disabled = clearing.disabled = !files.length;
    },
  });
  const copying = copyButton("Copy file names", () => files.map((name) => `${name}\n`).join(""));
  const clearing = button("Clear", () => ((text.value = ""), (pick.querySelector("select").value = ""), drawing.select([])));
  copying.disabled = clearing.disabled = true;

  const text = make("input", { type: "search", placeholder: "part of a name", spellcheck: "false" });
  let label = "";
  const filter = () => drawing.select(!text.value && !label ? [] : map.names.map((_, i) => i).filter((i) =>
    map.names[i].toLowerCase().includes(text.value.toLowerCase()) && (!label || map.labels[i] === Number(label))));
  text.addEventListener("input", filter);
  const present = map.labels ? [...new Set(map.labels)].filter((each) => each >= 0).sort((a, b) => a - b) : [];
  const pick = dropdown("Class", [["", "any"], ...present.map((each) => [String(each), map.classes[each] ?? String(each)])], "", (value) => ((label = value), filter()));

  const key = [...legend].map(([each, { count: size, colour, mark }]) => {
    const icon = draw("svg", { viewBox: "-8 -8 16 16", width: 14, height: 14, "aria-hidden": "true" }, legendMark(mark));
    icon.style.color = colour;
    return make("li", {}, icon, named(map.classes[each] ?? String(each)), make("span", { class: "muted" }, String(size)));
  });
  const others = map.labels ? map.labels.filter((each) => !legend.has(each)).length : 0;
  if (others) key.push(make("li", { class: "muted" }, make("span", { class: "grey-dot", "aria-hidden": "true" }), "others ", String(others)));
  const explained = (map.explained ?? []).filter(Number.isFinite);
  host.append(make("div", { class: "controls" },
    choice("Show", [["points", "points"], ["thumbnails", "thumbnails"]], drawing.mode, (mode) => ((drawing.mode = mode), drawing.draw())),
    choice("Pointer", [["move", "pan"], ["rectangle", "rectangle"], ["lasso", "lasso"]], "move", (tool) => {
      drawing.tool = tool;
      drawing.canvas.dataset.tool = tool;
    }),
    make("div", { class: "buttons", role: "group", "aria-label": "Zoom of the map" },
      button("−", () => drawing.zoomBy(1 / 1.5), { "aria-label": "Zoom the map out" }), button("+", () => drawing.zoomBy(1.5), { "aria-label": "Zoom the map in" }),
      button("Show all", () => (drawing.reset(), drawing.draw())))),
    withSprite(make("div", { class: "map-area" },
      make("div", { class: "map-box" }, drawing.canvas, hovered,
        make("p", { class: "hint" }, make("bdi", {}, map.method), ` of ${map.names.length} embeddings`, explained.length ? `; the two components explain ${percent(explained.reduce((a, b) => a + b, 0), 0)} of the variance.` : "."),
        make("ul", { class: "legend" }, key)),
      make("div", { class: "selection" },
        make("label", { class: "dropdown" }, make("span", {}, "File name"), " ", text), map.labels ? pick : null,
        count, list, make("div", { class: "buttons" }, copying, clearing))), map));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawing.draw());
  document.addEventListener("themechange", () => drawing.draw());
  document.addEventListener("drawall", () => drawing.drawNow());
}

function legendMark(mark) {
  const shapes = { square: "M-5-5H5V5H-5Z", triangle: "M0-6L6 5H-6Z", diamond: "M0-7L7 0L0 7L-7 0Z", cross: "M-6-2H-2V-6H2V-2H6V2H2V6H-2V2H-6Z" };
  return mark === "circle" ? draw("circle", { r: 5.5, fill: "currentColor" }) : draw("path", { d: shapes[mark], fill: "currentColor" });
}
