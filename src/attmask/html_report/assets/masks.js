// Which patches a strategy hides, bit for bit as attmask.masking does.

/** The rank of each patch in the sorted order; ties go to the lower index. */
function rankOf(values, descending) {
  const sign = descending ? -1 : 1;
  const order = Array.from(values, (_, i) => i);
  order.sort((a, b) => sign * (values[a] - values[b]) || a - b);
  const rank = new Int32Array(values.length);
  order.forEach((patch, place) => (rank[patch] = place));
  return rank;
}

/** k = int(n·r): 0.3 of 196 patches are 58. */
const countOf = (patches, ratio) => Math.trunc(patches * ratio);

const firstOf = (rank, count) => Uint8Array.from(rank, (place) => place < count);

const masks = {
  /** Hide the most attended patches. */
  high: (attention, { ratio }) =>
    firstOf(rankOf(attention, true), countOf(attention.length, ratio)),

  /** Hide the least attended patches. */
  low: (attention, { ratio }) =>
    firstOf(rankOf(attention, false), countOf(attention.length, ratio)),

  /** Hide the most attended patches, but show a few of the foremost, drawn by lot. */
  hint(attention, { ratio, showMax, seed, image }) {
    const patches = attention.length;
    const rank = rankOf(attention, true);
    const candidates = Math.trunc(showMax * patches);
    const draws = uniforms("hint patch", [seed, 0, image, 0], patches);
    const lots = Float32Array.from(rank, (place, i) => (place < candidates ? draws[i] : 2));
    const shown = firstOf(rankOf(lots, false), countOf(patches, showMax * ratio));
    const hidden = firstOf(rank, countOf(patches, ratio));
    return hidden.map((is, i) => is & (1 - shown[i]));
  },
};
