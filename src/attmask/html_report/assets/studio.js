// The mask studio: an image, its attention, and what each strategy hides at any ratio.

const STRATEGIES = [["high", "High"], ["low", "Low"], ["hint", "Hint"], ["random", "Random"], ["block", "Block"]];
const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;

/** The images of the probe as radio buttons with thumbnails. */
function imageChoice(probe, chosen, onchoose) {
  const name = freshId("image");
  return make("fieldset", { class: "thumbs" }, make("legend", {}, "Image"), make("div", {}, probe.images.map((image, i) => {
    const radio = make("input", { type: "radio", name, value: i, checked: i === chosen });
    radio.addEventListener("change", () => onchoose(i));
    const [width, height] = probe.size;
    const thumb = make("img", { src: image.src, alt: image.name, title: image.name, width, height });
    return make("label", {}, radio, thumb);
  })));
}

/** The index of the stored ratio that is next to this one. */
const nearestRatio = (ratios, ratio) =>
  ratios.reduce((best, other, i) => (Math.abs(other - ratio) < Math.abs(ratios[best] - ratio) ? i : best), 0);

/** The hidden patches of one choice, and the ratio that they were drawn at. */
function maskOf(studio, { image, row, strategy, ratio, showMax }) {
  if (strategy in masks) {
    const attention = part(studio.attention, image, row);
    return { mask: masks[strategy](attention, { ratio, showMax, seed: studio.seed, image }), at: ratio };
  }
  const i = nearestRatio(studio.ratios, ratio);
  return { mask: part(studio[strategy], image, i), at: studio.ratios[i] };
}

let studioChoice = null; // what the reader chose, kept from run to run so that their masks compare

function drawStudio(host, run) {
  const { probe, studio } = run;
  if (!probe || !studio) {
    return host.append(empty("This run has no attention maps of its probe images: its checkpoint or its images were not at hand.", `attmask report ${run.folder}`));
  }
  const known = STRATEGIES.some(([name]) => name === studio.strategy);
  const now = { image: 0, row: studio.default_row, strategy: known ? studio.strategy : "high", ratio: studio.ratio, showMax: Math.min(studio.show_max, studio.ratio) };
  if (studioChoice) {
    const { image, row } = studioChoice;
    Object.assign(now, studioChoice, { image: Math.min(image, probe.images.length - 1), row: Math.min(row, studio.rows.length - 1) });
  }
  const choose = (choice) => {
    Object.assign(now, choice);
    studioChoice = { ...now };
    update();
  };
  const cell = (title) => {
    const canvas = patchCanvas(probe, title);
    const caption = make("figcaption", {}, title);
    return { canvas, caption, figure: make("figure", {}, canvas, caption) };
  };
  const [input, attended, masked] = ["input", "attention", "masked"].map(cell);
  const ramp = rampBar(0, 1, "Attention weight");
  attended.figure.append(ramp);
  const count = make("output", { class: "count" });
  const object = make("p", { class: "object" });
  const note = make("p", { class: "note" });

  const update = () => {
    const image = probe.images[now.image];
    const attention = part(studio.attention, now.image, now.row);
    const { mask, at } = maskOf(studio, now);
    const [low, high] = extent([attention]) ?? [0, 1];
    const [, title] = STRATEGIES.find(([name]) => name === now.strategy);
    const hidden = mask.reduce((sum, is) => sum + is, 0);
    paint(input.canvas, image.src, probe.grid);
    paint(attended.canvas, image.src, probe.grid, { grey: true, over: heat(attention, low, high) });
    paint(masked.canvas, image.src, probe.grid, { over: hide(mask) });
    ramp.range(low, high);
    count.textContent = `${hidden} of ${mask.length} (${percent(hidden / mask.length)})`;
    input.caption.replaceChildren("Input: ", named(image.name), ...(image.label ? [make("br"), named(image.label)] : []));
    attended.caption.replaceChildren("Attention: ", named(studio.rows[now.row].title));
    masked.caption.replaceChildren(`Masked: ${title}, ${percent(at, 0)}`);
    input.canvas.setAttribute("aria-label", `Image ${image.name}`);
    attended.canvas.setAttribute("aria-label", `Attention of ${studio.rows[now.row].title} over ${image.name}, from ${readable(low, 3)} to ${readable(high, 3)}`);
    masked.canvas.setAttribute("aria-label", `${image.name} with ${count.textContent} patches hidden by ${title}`);
    const drawn = !(now.strategy in masks);
    note.textContent = drawn ? `Drawn at random, whatever the attention is. Shown at the nearest stored ratio, ${percent(at, 0)}.` : now.strategy === "hint" ?
      `${countOf(mask.length, now.showMax * now.ratio)} of the ${Math.trunc(now.showMax * mask.length)} most attended patches are revealed as hints.` : `${now.strategy === "high" ? "The most" : "The least"} attended patches are hidden.`;
    object.textContent = objectSentence(image.object, mask);
    hint.input.disabled = now.strategy !== "hint";
  };
  const ratio = slider("Mask ratio", { min: 0, max: 1, step: 0.01, value: now.ratio }, (r) => percent(r, 0), (value) => {
    const showMax = Math.min(now.showMax, value); // no more may be shown than are hidden
    hint.input.max = value;
    hint.input.value = showMax;
    hint.update();
    choose({ ratio: value, showMax });
  });
  const hint = slider("Hint: reveal at most", { min: 0, max: now.ratio, step: 0.01, value: now.showMax }, (r) => percent(r, 0), (value) => {
    choose({ showMax: Math.min(value, now.ratio) });
  });
  host.append(imageChoice(probe, now.image, (image) => choose({ image })),
    make("div", { class: "controls" },
      choice("Strategy", STRATEGIES, now.strategy, (strategy) => choose({ strategy })),
      ratio.box, hint.box,
      dropdown("Attention", studio.rows.map(({ title }, i) => [String(i), title]), String(now.row), (row) => choose({ row: Number(row) }))),
    make("p", { class: "hidden-count", "aria-live": "polite" }, count, " patches hidden"), object, note,
    make("div", { class: "trio" }, input.figure, attended.figure, masked.figure));
  update();
}

/** How much of a known object is hidden. */
function objectSentence(array, mask) {
  if (!array) return "";
  const object = decode(array);
  const whole = object.reduce((sum, share) => sum + share, 0);
  if (!whole) return "No object is marked in this image.";
  const hidden = object.reduce((sum, share, i) => sum + share * mask[i], 0);
  return `${percent(hidden / whole)} of the object is hidden.`;
}
