// The page: its sections, drawn when they come into sight.

const payload = withShared(JSON.parse(document.getElementById("payload").textContent));
payload.runs.forEach((run, number) => (run.number = number));
const several = payload.runs.length > 1;
const now = { run: payload.runs[0] };

// Section: its id, its title, its parts [title or null, reserved height, drawing]; `own` belongs to one run.
const SECTIONS = [
  payload.comparison && { id: "comparison", title: "Comparison", parts: [[null, 0, (host) => drawComparison(host, payload)]] },
  { id: "verdict", title: "Verdict", own: true, parts: [[null, 0, (host) => drawVerdict(host, now.run, payload)]] },
  { id: "curves", title: "Curves", parts: [[null, 1600, (host) => drawCurves(host, payload)]] },
  { id: "studio", title: "Mask studio", own: true, parts: [[null, 640, (host) => drawStudio(host, now.run)]] },
  { id: "patches", title: "Patches", own: true, parts: [
    ["Similarity to a patch", 560, (host) => drawSimilarity(host, now.run)], ["Patch PCA over epochs", 320, (host) => drawPca(host, now.run)]] },
  { id: "images", title: "Images", own: true, parts: [
    ["Nearest neighbours", 560, (host) => drawNeighbours(host, now.run, payload)], ["Map of embeddings", 700, (host) => drawMap(host, now.run)],
    ["Outliers and duplicates", 300, (host) => drawOdd(host, now.run)]] },
  { id: "evaluations", title: "Evaluations", parts: [[null, 420, (host) => drawEvaluations(host, payload)]] },
  { id: "timeline", title: "Timeline", own: true, parts: [[null, 480, (host) => drawTimeline(host, now.run)]] },
  { id: "about", title: "What was run", own: true, parts: [[null, 480, (host) => drawAbout(host, now.run)]] },
].filter(Boolean);

const pending = new Map(); // parts that are not drawn yet, by their element
function drawPart(host) {
  const drawing = pending.get(host);
  if (!drawing) return;
  pending.delete(host);
  sight.unobserve(host);
  host.replaceChildren();
  drawing(host);
  host.style.minHeight = "";
}
const sight = new IntersectionObserver((entries) => entries.forEach((entry) => entry.isIntersecting && drawPart(entry.target)), { rootMargin: "600px" });

function later(host, height, drawing) {
  host.style.minHeight = `${Math.max(height, host.offsetHeight)}px`; // a part that is drawn again keeps its place
  pending.set(host, drawing);
  if (height === 0) drawPart(host);
  else sight.observe(host);
}

/** Draw what is left while the browser has nothing else to do. */
function drawRest() {
  const next = pending.keys().next().value;
  if (next) (window.requestIdleCallback ?? setTimeout)(() => (drawPart(next), drawRest()));
}

const hosts = new Map();
function build() {
  const main = document.getElementById("main");
  const foot = document.getElementById("foot");
  main.replaceChildren(make("div", { class: "title" }, make("h1", {}, prose(payload.title)),
    make("p", { class: "made" }, `Made ${timeText(payload.made)} with attmask `, make("bdi", {}, payload.attmask), ` from ${payload.runs.length} ${several ? "runs" : "run"}`)));
  for (const section of SECTIONS) {
    const title = make("h2", { id: `${section.id}-title` }, section.title, section.own && several ? make("span", { class: "of-run" }) : null);
    const element = make("section", { id: section.id, "aria-labelledby": `${section.id}-title` }, title);
    for (const [subtitle, height, drawing] of section.parts) {
      const host = make("div", { class: "part" });
      element.append(...(subtitle ? [make("h3", { class: "subtitle" }, subtitle)] : []), host);
      hosts.set(host, { height, drawing, own: section.own });
    }
    main.append(element);
    document.getElementById("contents").append(make("li", {}, make("a", { href: `#${section.id}` }, section.title)));
  }
  foot.append(make("h2", { class: "foot-title" }, "Command that built this report"), commandLine(payload.command));
  hosts.forEach(({ height, drawing, own }, host) => own || later(host, height, drawing)); // `show` does the others
}

function show(run) {
  now.run = run;
  document.querySelectorAll(".of-run").forEach((place) => place.replaceChildren(swatch(lineStyle(run)), named(run.name)));
  hosts.forEach(({ height, drawing, own }, host) => own && later(host, height, drawing));
  drawRest();
}

function pickRuns() {
  const select = document.getElementById("run");
  document.getElementById("run-picker").hidden = !several;
  select.append(...payload.runs.map((run) => make("option", { value: run.number, title: run.name }, run.name)));
  select.addEventListener("change", () => (show(payload.runs[Number(select.value)]), announce(`Run ${now.run.name}`)));
}

function switchThemes() {
  const themes = ["system", "light", "dark"];
  let theme = 0;
  const press = document.getElementById("theme");
  press.addEventListener("click", () => {
    theme = (theme + 1) % themes.length;
    document.documentElement.dataset.theme = themes[theme];
    press.lastElementChild.textContent = `Theme: ${themes[theme]}`;
    document.dispatchEvent(new Event("themechange"));
  });
}

/** Mark the section in sight in the table of contents. */
function followReader() {
  const links = new Map([...document.querySelectorAll("#contents a")].map((link) => [link.hash.slice(1), link]));
  const reading = new IntersectionObserver((entries) => entries.forEach(({ target, isIntersecting }) => {
    if (!isIntersecting) return;
    links.forEach((link) => link.removeAttribute("aria-current"));
    links.get(target.id)?.setAttribute("aria-current", "location");
  }), { rootMargin: "-20% 0px -75% 0px" });
  document.querySelectorAll("main > *").forEach((section) => reading.observe(section));
}

build();
pickRuns();
switchThemes();
followReader();
preparePrints();
show(now.run);
window.attmask = { masks, uniform, decode, firstEpochReaching, asMarkdown, asLatex, cosines, payload };
