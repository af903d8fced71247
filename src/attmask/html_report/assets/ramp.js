// Colours of values, and pictures with values over them.

// From dark indigo over rose to pale yellow with evenly increasing lightness, as in
// attmask.visualize: equal differences look equal, also in grey and to the colour-blind.
const RAMP = [
  [14, 14, 39], [51, 21, 82], [102, 20, 109], [159, 17, 111], [211, 39, 91],
  [247, 86, 57], [255, 142, 35], [255, 197, 88], [255, 244, 165],
];

/** The colour of a value from 0 to 1. */
function rampColour(value) {
  const position = Math.min(Math.max(value, 0), 1) * (RAMP.length - 1);
  const low = Math.min(Math.floor(position), RAMP.length - 2);
  const share = position - low;
  return RAMP[low].map((colour, i) => Math.round(colour * (1 - share) + RAMP[low + 1][i] * share));
}

/** A bar of the colours with the numbers at its ends. */
function rampBar(low, high, title) {
  const numbers = make("span", { class: "ramp-numbers" });
  const bar = make("div", { class: "ramp" }, make("span", { class: "ramp-title" }, title),
    make("span", { class: "ramp-bar" }), numbers);
  bar.range = (from, to) =>
    numbers.replaceChildren(make("span", {}, readable(from, 3)), make("span", {}, readable(to, 3)));
  bar.range(low, high);
  return bar;
}

const loading = new Map();
/** The decoded picture of a data: URI, loaded once; a broken one becomes null. */
function picture(src) {
  if (!loading.has(src)) {
    const image = new Image();
    image.src = src;
    loading.set(src, image.decode().then(() => image, () => null));
  }
  return loading.get(src);
}

/** A canvas in the shape of the probe's crops, large enough for sharp patches. */
function patchCanvas(probe, label, smallest = 320) {
  const [width, height] = probe.size;
  const factor = Math.max(1, Math.ceil(smallest / Math.min(width, height)));
  const shape = { width: width * factor, height: height * factor };
  const canvas = make("canvas", { ...shape, role: "img", "aria-label": label });
  canvas.style.aspectRatio = `${width} / ${height}`;
  return canvas;
}

/** Draw the picture, grey if asked for, then what `over` paints for each patch. */
async function paint(canvas, src, grid, { grey = false, over = null } = {}) {
  const turn = (canvas.turn = (canvas.turn ?? 0) + 1);
  const image = src ? await picture(src) : null;
  if (canvas.turn !== turn) return; // a later drawing has begun
  const pen = canvas.getContext("2d");
  const { width, height } = canvas;
  pen.globalCompositeOperation = "source-over";
  pen.fillStyle = "#808080";
  pen.fillRect(0, 0, width, height);
  if (image) pen.drawImage(image, 0, 0, width, height);
  if (grey) {
    pen.globalCompositeOperation = "saturation";
    pen.fillRect(0, 0, width, height);
    pen.globalCompositeOperation = "source-over";
  }
  if (!over) return;
  const [rows, cols] = grid;
  for (let patch = 0; patch < rows * cols; patch++) {
    const left = Math.round(((patch % cols) * width) / cols);
    const top = Math.round((Math.floor(patch / cols) * height) / rows);
    const right = Math.round((((patch % cols) + 1) * width) / cols);
    const bottom = Math.round(((Math.floor(patch / cols) + 1) * height) / rows);
    over(pen, patch, [left, top, right - left, bottom - top]);
  }
}

/** Paints values as colours, from `low` to `high`. */
const heat = (values, low, high, strength = 0.65) => (pen, patch, box) => {
  const share = (values[patch] - low) / Math.max(high - low, 1e-38);
  pen.fillStyle = `rgb(${rampColour(share).join(" ")} / ${strength})`;
  pen.fillRect(...box);
};

/** Paints hidden patches in grey with a thin outline. */
const hide = (mask) => (pen, patch, box) => {
  if (!mask[patch]) return;
  pen.fillStyle = "rgb(98 98 106)";
  pen.fillRect(...box);
  pen.strokeStyle = "rgb(124 124 132)";
  pen.strokeRect(box[0] + 0.5, box[1] + 0.5, box[2] - 1, box[3] - 1);
};
