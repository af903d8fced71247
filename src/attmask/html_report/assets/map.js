// The map of embeddings on a canvas: zoom, pan, points or thumbnails, and selections by hand.

const LEGEND = 10;
const MARKS = ["circle", "square", "triangle", "diamond", "cross"];

/** The largest classes with their colours and marks; all others are grey. */
function legendOf(map) {
  if (!map.labels) return new Map();
  const counts = new Map();
  map.labels.forEach((label) => label >= 0 && counts.set(label, (counts.get(label) ?? 0) + 1));
  const largest = [...counts].sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, LEGEND);
  return new Map(largest.map(([label, count], i) => [label, { count, colour: `var(--class-${i})`, mark: MARKS[i % MARKS.length] }]));
}

/** The outline of a mark around a point. */
function markPath(mark, x, y, r) {
  const path = new Path2D();
  if (mark === "circle") path.arc(x, y, r, 0, 2 * Math.PI);
  else if (mark === "square") path.rect(x - r * 0.9, y - r * 0.9, 1.8 * r, 1.8 * r);
  else if (mark === "cross") path.addPath(new Path2D(`M${x - r} ${y - r / 3}H${x - r / 3}V${y - r}H${x + r / 3}V${y - r / 3}H${x + r}V${y + r / 3}H${x + r / 3}V${y + r}H${x - r / 3}V${y + r / 3}H${x - r}Z`));
  else if (mark === "triangle") path.addPath(new Path2D(`M${x} ${y - 1.2 * r}L${x + 1.1 * r} ${y + 0.8 * r}L${x - 1.1 * r} ${y + 0.8 * r}Z`));
  else path.addPath(new Path2D(`M${x} ${y - 1.3 * r}L${x + 1.3 * r} ${y}L${x} ${y + 1.3 * r}L${x - 1.3 * r} ${y}Z`));
  return path;
}

/** A canvas of points that can be moved, zoomed and selected. */
class EmbeddingMap {
  constructor(map, legend, { onselect, onhover }) {
    Object.assign(this, { map, legend, onselect, onhover });
    this.points = decode(map.points);
    this.mode = map.names.length > 400 ? "points" : "thumbnails";
    this.tool = "move";
    this.selected = new Set();
    this.hovered = -1;
    this.shape = null;
    this.canvas = make("canvas", { class: "map", tabindex: "0", role: "application",
      "aria-label": `Map of ${map.names.length} images. Arrow keys move it, plus and minus zoom, 0 shows all. The fields beside it select without a pointer.` });
    this.reset();
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    picture(map.sprite).then((image) => ((this.sprite = image), this.draw()));
  }

  reset() {
    const xs = this.points.filter((_, i) => i % 2 === 0), ys = this.points.filter((_, i) => i % 2 === 1);
    const [left, right] = extent([xs]) ?? [0, 1], [low, high] = extent([ys]) ?? [0, 1];
    this.home = { x: (left + right) / 2, y: (low + high) / 2, width: right - left || 1, height: high - low || 1 };
    this.centre = { x: this.home.x, y: this.home.y };
    this.scale = 1;
  }

  measure() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const unit = this.scale * Math.min((width - 56) / this.home.width, (height - 56) / this.home.height);
    Object.assign(this, { width, height, unit });
  }

  at(i) {
    return [this.width / 2 + (this.points[2 * i] - this.centre.x) * this.unit, this.height / 2 - (this.points[2 * i + 1] - this.centre.y) * this.unit];
  }

  draw() {
    this.waiting ??= requestAnimationFrame(() => ((this.waiting = null), this.drawNow()));
  }

  drawNow() {
    this.measure();
    if (!this.width) return;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = this.width * ratio;
    this.canvas.height = this.height * ratio;
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const colours = new Map([...this.legend].map(([label, { colour }]) => [label, resolved(this.canvas, colour)]));
    const [grey, ink, paper] = ["var(--muted)", "var(--ink)", "var(--raised)"].map((colour) => resolved(this.canvas, colour));
    const some = this.selected.size > 0;
    const side = Math.min(64, 22 * Math.sqrt(this.scale));
    for (let i = 0; i < this.map.names.length; i++) {
      const [x, y] = this.at(i);
      if (!(x > -40 && y > -40 && x < this.width + 40 && y < this.height + 40)) continue;
      const chosen = this.selected.has(i);
      const kind = this.legend.get(this.map.labels?.[i]);
      const colour = colours.get(this.map.labels?.[i]) ?? grey;
      const marked = chosen || i === this.hovered;
      pen.globalAlpha = some && !marked ? 0.25 : 1;
      if (this.mode === "thumbnails" && this.sprite) {
        const { tile, columns } = this.map;
        pen.drawImage(this.sprite, (i % columns) * tile, Math.floor(i / columns) * tile, tile, tile, x - side / 2, y - side / 2, side, side);
        pen.lineWidth = marked ? 3 : 2;
        pen.strokeStyle = marked ? ink : colour;
        pen.strokeRect(x - side / 2, y - side / 2, side, side);
      } else {
        const mark = markPath(kind?.mark ?? "circle", x, y, marked ? 6 : 4.5);
        pen.fillStyle = colour;
        pen.fill(mark);
        pen.lineWidth = marked ? 2 : 0.8;
        pen.strokeStyle = marked ? ink : paper;
        pen.stroke(mark);
      }
    }
    pen.globalAlpha = 1;
    if (!this.shape) return;
    pen.beginPath();
    this.outline().forEach(([x, y], i) => (i ? pen.lineTo(x, y) : pen.moveTo(x, y)));
    pen.closePath();
    pen.setLineDash([5, 4]);
    pen.lineWidth = 1.5;
    pen.strokeStyle = ink;
    pen.stroke();
  }

  /** The corners of what is being drawn by hand. */
  outline() {
    if (this.tool === "lasso") return this.shape;
    const [[left, top], [right, bottom]] = [this.shape[0], this.shape.at(-1)];
    return [[left, top], [right, top], [right, bottom], [left, bottom]];
  }

  select(indices) {
    this.selected = new Set(indices);
    this.draw();
    this.onselect([...this.selected].sort((a, b) => a - b));
  }

  zoomBy(factor, x = this.width / 2, y = this.height / 2) {
    const scale = Math.min(Math.max(this.scale * factor, 0.5), 60);
    const grown = scale / this.scale;
    this.centre.x += ((x - this.width / 2) / this.unit) * (1 - 1 / grown);
    this.centre.y -= ((y - this.height / 2) / this.unit) * (1 - 1 / grown);
    this.scale = scale;
    this.draw();
  }

  nearestTo(x, y) {
    let best = -1, distance = 14 ** 2;
    for (let i = 0; i < this.map.names.length; i++) {
      const [px, py] = this.at(i);
      const away = (px - x) ** 2 + (py - y) ** 2;
      if (away < distance) (best = i), (distance = away);
    }
    return best;
  }

  listen() {
    const { canvas } = this;
    let last = null;
    const place = (event) => [event.offsetX, event.offsetY];
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      canvas.setPointerCapture(event.pointerId);
      last = place(event);
      if (this.tool !== "move") this.shape = [last];
    });
    canvas.addEventListener("pointermove", (event) => {
      const here = place(event);
      if (!last) return this.onhover(this.nearestTo(...here));
      if (this.shape) this.shape.push(here);
      else {
        this.centre.x -= (here[0] - last[0]) / this.unit;
        this.centre.y += (here[1] - last[1]) / this.unit;
      }
      last = here;
      this.draw();
    });
    canvas.addEventListener("pointerup", (event) => {
      const path = this.shape && this.outline();
      last = this.shape = null;
      if (path) this.select(this.map.names.map((_, i) => i).filter((i) => inside(path, ...this.at(i))));
      else this.onhover(this.nearestTo(...place(event)));
    });
    canvas.addEventListener("pointercancel", () => ((last = this.shape = null), this.draw()));
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      this.zoomBy(event.deltaY > 0 ? 0.8 : 1.25, ...place(event));
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: [-40, 0], ArrowRight: [40, 0], ArrowUp: [0, -40], ArrowDown: [0, 40] };
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key in moves) {
        this.centre.x += moves[event.key][0] / this.unit;
        this.centre.y -= moves[event.key][1] / this.unit;
      } else if (event.key === "+" || event.key === "=") this.zoomBy(1.4);
      else if (event.key === "-") this.zoomBy(1 / 1.4);
      else if (event.key === "0") this.reset();
      else return;
      event.preventDefault();
      this.draw();
    });
  }
}

/** Whether a point is inside of a closed path (even-odd rule). */
function inside(path, x, y) {
  let is = false;
  path.forEach(([x1, y1], i) => {
    const [x2, y2] = path[(i + 1) % path.length];
    if (y1 > y !== y2 > y && x < x1 + ((y - y1) / (y2 - y1)) * (x2 - x1)) is = !is;
  });
  return is;
}

/** A colour of the style sheet as it is in the present theme. */
function resolved(element, colour) {
  const before = element.style.color;
  element.style.color = colour;
  const value = getComputedStyle(element).color;
  element.style.color = before;
  return value;
}
