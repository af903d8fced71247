// Elements of the page. Text from the payload is never parsed: it becomes text nodes only.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes, listeners (onclick: …) and children: nodes, texts, null. */
function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** A name from outside: isolated from the text around it, shortened by CSS, whole in its title. */
const named = (text, kind = "") =>
  make("bdi", { class: `name ${kind}`, title: text }, String(text));

/** A longer text from outside, which may be broken anywhere but before a percent sign. */
function prose(text, tag = "span") {
  const kept = String(text).replace(/(\d) %/g, "$1\u00a0%");
  return make(tag, { class: kept.length > 24 ? "prose long" : "prose" }, make("bdi", {}, kept));
}

let ids = 0;
const freshId = (stem) => `${stem}-${ids++}`;

/** A number for people: four significant digits, or as many as asked for; whole numbers whole. */
function readable(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e9) return value.toLocaleString("en").replace("-", "−");
  if (size < 1e-3 || size >= 1e6) {
    return value.toExponential(Math.min(digits - 1, 2)).replace(/\.?0+e/, "e").replace("e+", "e").replaceAll("-", "−");
  }
  return decimal(value, Math.max(0, digits - 1 - Math.floor(Math.log10(size))));
}

/** A number with so many places after its point. */
function decimal(value, places) {
  if (!Number.isFinite(value)) return "–";
  const text = value.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places });
  return text.replace("-", "−");
}

/** A number below others: percentages have two places, unless they are very small. */
const inColumn = (value, unit) => (unit === "%" && Math.abs(value) >= 0.1 ? decimal(value, 2) : readable(value));

const withUnit = (value, unit, digits) =>
  Number.isFinite(value) && unit ? `${readable(value, digits)} ${unit}` : readable(value, digits);

function button(label, onclick, attributes = {}) {
  return make("button", { type: "button", onclick, ...attributes }, label);
}

/** A button that copies a text and says so. */
function copyButton(label, text) {
  const element = button(label, async () => {
    const copied = await copy(typeof text === "function" ? text() : text);
    element.textContent = copied ? "Copied" : "Not copied";
    announce(element.textContent);
    setTimeout(() => (element.textContent = label), 1600);
  });
  return element;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Browsers that have no clipboard on pages from disk copy what is selected.
    const area = make("textarea", { class: "unseen", "aria-hidden": "true" });
    area.value = text;
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    return copied;
  }
}

let announcer = null;
/** Say something to screen readers. */
function announce(text) {
  if (!announcer) {
    announcer = make("div", { class: "unseen", role: "status" });
    document.body.append(announcer);
  }
  announcer.textContent = text;
}

/** A command line with its copy button. */
function commandLine(command) {
  const code = make("code", {}, make("bdi", {}, command));
  return make("div", { class: "command" }, make("pre", {}, code), copyButton("Copy", command));
}

/** What is missing, and what to run for it. */
const empty = (why, command) =>
  make("p", { class: "empty" }, why, command ? [" Run ", make("code", {}, command), "."] : null);

/** One choice of several as radio buttons side by side. */
function choice(legend, options, chosen, onchoose, kind = "segments") {
  const name = freshId("choice");
  const labels = options.map(([value, label]) => {
    const radio = make("input", { type: "radio", name, value, checked: value === chosen });
    radio.addEventListener("change", () => onchoose(value));
    return make("label", {}, radio, make("span", {}, label));
  });
  return make("fieldset", { class: kind }, make("legend", {}, legend), make("div", {}, labels));
}

/** A slider with its label and its value in words. */
function slider(label, { min, max, step, value }, words, oninput) {
  const output = make("output", {}, words(value));
  const input = make("input", { type: "range", min, max, step, "aria-valuetext": words(value) });
  input.value = value;
  const update = () => {
    output.textContent = words(Number(input.value));
    input.setAttribute("aria-valuetext", output.textContent);
  };
  input.addEventListener("input", () => (update(), oninput(Number(input.value))));
  const box = make("label", { class: "slider" }, make("span", {}, label, " ", output), input);
  return { box, input, update };
}

/** A drop-down list. */
function dropdown(label, options, chosen, onchoose) {
  const select = make("select", {}, options.map(([value, text]) => make("option", { value }, text)));
  select.value = chosen;
  select.addEventListener("change", () => onchoose(select.value));
  return make("label", { class: "dropdown" }, make("span", {}, label), " ", select);
}
