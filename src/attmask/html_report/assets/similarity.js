// A chosen patch, and how similar all patches of all images are to it.

/** The cosine of one vector with each of many, all of int8. */
function cosines(vector, vectors) {
  const width = vector.length;
  const length = (at, list) => {
    let sum = 0;
    for (let i = 0; i < width; i++) sum += list[at + i] ** 2;
    return Math.sqrt(sum);
  };
  const own = length(0, vector);
  return Float32Array.from({ length: vectors.length / width }, (_, patch) => {
    let dot = 0;
    for (let i = 0; i < width; i++) dot += vector[i] * vectors[patch * width + i];
    const other = length(patch * width, vectors);
    return own && other ? dot / (own * other) : 0;
  });
}

function drawSimilarity(host, run) {
  const { probe, similarity } = run;
  if (!probe || !similarity) {
    return host.append(empty("This run has no patch features of its probe images.", `attmask report ${run.folder}`));
  }
  const [rows, cols] = probe.grid;
  const attention = run.studio ? part(run.studio.attention, 0, run.studio.default_row) : null;
  const middle = Math.floor(rows / 2) * cols + Math.floor(cols / 2);
  const now = { image: 0, patch: attention ? attention.indexOf(Math.max(...attention)) : middle }; // the most attended
  const picked = patchCanvas(probe, "Chosen patch");
  const grid = make("div", { class: "patch-grid", tabindex: "0", role: "application",
    "aria-label": "Choose a patch: click, or move with the arrow keys." }, picked);
  const where = make("p", { class: "note", "aria-live": "polite" });
  const ramp = rampBar(0, 1, "Cosine similarity");
  const maps = probe.images.map((image, i) => {
    const canvas = patchCanvas(probe, image.name, 200);
    canvas.addEventListener("click", (event) => choose(i, event));
    return { canvas, figure: make("figure", {}, canvas, make("figcaption", {}, named(image.name))) };
  });

  const choose = (image, event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const col = Math.min(cols - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * cols)));
    const row = Math.min(rows - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * rows)));
    select(image, row * cols + col);
  };
  const select = (image, patch) => {
    Object.assign(now, { image, patch });
    radios[image].checked = true;
    update();
  };
  const update = () => {
    const width = similarity.features.shape[2];
    const vector = part(similarity.features, now.image).subarray(now.patch * width, (now.patch + 1) * width);
    const values = probe.images.map((_, i) => cosines(vector, part(similarity.features, i)));
    const [low] = extent(values) ?? [0];
    ramp.range(low, 1);
    const [row, col] = [Math.floor(now.patch / cols), now.patch % cols];
    const ring = (pen, patch, box) => {
      if (patch !== now.patch) return;
      pen.lineWidth = Math.max(3, box[2] / 6);
      pen.strokeStyle = "#28282c";
      pen.strokeRect(...box);
      pen.lineWidth /= 2.5;
      pen.strokeStyle = "#ffffff";
      pen.strokeRect(...box);
    };
    paint(picked, probe.images[now.image].src, probe.grid, { over: null }).then(() => paint(picked, probe.images[now.image].src, probe.grid, { over: ring }));
    picked.setAttribute("aria-label", `${probe.images[now.image].name}, chosen patch in row ${row + 1}, column ${col + 1}`);
    maps.forEach(({ canvas, figure }, i) => {
      const own = i === now.image;
      const colour = heat(values[i], low, 1, 0.78);
      const over = (pen, patch, box) => (colour(pen, patch, box), own && ring(pen, patch, box));
      paint(canvas, probe.images[i].src, probe.grid, { grey: true, over });
      figure.classList.toggle("own", own);
      canvas.setAttribute("aria-label", `Similarity of ${probe.images[i].name}, at most ${readable(extent([values[i]])[1], 3)}`);
    });
    where.textContent = `Row ${row + 1} of ${rows}, column ${col + 1} of ${cols}. The stored features keep ${percent(similarity.kept, 0)} of the squared norm.`;
  };
  grid.addEventListener("click", (event) => choose(now.image, event));
  grid.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (!(event.key in moves)) return;
    event.preventDefault();
    const row = Math.min(Math.max(Math.floor(now.patch / cols) + moves[event.key][0], 0), rows - 1);
    const col = Math.min(Math.max((now.patch % cols) + moves[event.key][1], 0), cols - 1);
    select(now.image, row * cols + col);
  });
  const images = imageChoice(probe, 0, (i) => select(i, now.patch));
  const radios = images.querySelectorAll("input");
  host.append(make("p", { class: "hint" }, "Click a patch, here or in any map: the maps show how similar every patch of every image is to it."),
    images, make("div", { class: "similar" },
    make("div", { class: "chosen" }, grid, where, ramp), make("div", { class: "maps" }, maps.map(({ figure }) => figure))));
  update();
}
