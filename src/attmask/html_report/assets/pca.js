// The first three principal components of the patch features as colours, epoch by epoch.

function drawPca(host, run) {
  const { probe, pca } = run;
  if (!probe || !pca || !pca.epochs.length) {
    return host.append(empty("No checkpoints of earlier epochs are kept, so there is nothing to compare over the epochs.", `attmask report ${run.folder}`));
  }
  let at = pca.epochs.length - 1;
  let timer = null;
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const maps = probe.images.map((image, i) => {
    const canvas = patchCanvas(probe, image.name, 200);
    return { canvas, figure: make("figure", {}, canvas, make("figcaption", {}, named(image.name))) };
  });
  const words = (i) => `epoch ${readable(pca.epochs[i])}`;
  const update = () => maps.forEach(({ canvas }, i) => {
    const colours = part(pca.colours, at, i);
    canvas.setAttribute("aria-label", `Principal components of ${probe.images[i].name} at ${words(at)}`);
    paint(canvas, null, probe.grid, { over: (pen, patch, box) => {
      pen.fillStyle = `rgb(${colours.subarray(3 * patch, 3 * patch + 3).join(" ")})`;
      pen.fillRect(...box);
    } });
  });
  const epochs = slider("Checkpoint:", { min: 0, max: pca.epochs.length - 1, step: 1, value: at }, words, (value) => (stop(), (at = value), update()));
  const go = (i) => {
    at = i % pca.epochs.length;
    epochs.input.value = at;
    epochs.update();
    update();
  };
  const stop = () => {
    clearInterval(timer);
    timer = null;
    play.textContent = calm ? "Next epoch" : "Play";
  };
  const play = button(calm ? "Next epoch" : "Play", () => {
    if (calm) return go(at + 1);
    if (timer) return stop();
    play.textContent = "Pause";
    go(at === pca.epochs.length - 1 ? 0 : at + 1);
    timer = setInterval(() => {
      if (!host.isConnected || at === pca.epochs.length - 1) stop();
      else go(at + 1);
    }, 700);
  }, { disabled: pca.epochs.length < 2 });
  host.append(make("p", { class: "hint" }, "The first three principal components of the patch features as lightness, blue to yellow, and green to red."),
    make("div", { class: "controls" }, play, epochs.box),
    make("div", { class: "maps" }, maps.map(({ figure }) => figure)));
  update();
}
