// Before the page is printed, all of it is drawn, as wide as the paper is.

function preparePrints() {
  const root = document.documentElement;
  let opened = [];
  window.addEventListener("beforeprint", () => {
    root.classList.add("printing");
    [...pending.keys()].forEach(drawPart);
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach((details) => (details.open = true));
    document.dispatchEvent(new Event("drawall"));
  });
  window.addEventListener("afterprint", () => {
    root.classList.remove("printing");
    opened.forEach((details) => (details.open = false));
    document.dispatchEvent(new Event("drawall"));
  });
}
