// Thumbnails of the map's images, cut out of one sprite.

/** Give an element the sprite that the thumbnails in it are cut from. */
function withSprite(element, map) {
  element.style.setProperty("--sprite", `url("${map.sprite}")`);
  return element;
}

/** Image i of the map, `side` pixels wide. */
function thumbnail(map, i, side = 48) {
  const element = make("span", { class: "thumb", role: "img", "aria-label": map.names[i], title: map.names[i] });
  const rows = Math.ceil(map.names.length / map.columns);
  element.style.cssText = `width:${side}px;height:${side}px;` +
    `background-size:${map.columns * side}px ${rows * side}px;` +
    `background-position:${-(i % map.columns) * side}px ${-Math.floor(i / map.columns) * side}px`;
  return element;
}

const classOf = (map, i) => (map.labels && map.labels[i] >= 0 ? map.classes[map.labels[i]] ?? null : null);
