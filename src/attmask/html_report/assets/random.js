// Random numbers by counter (SplitMix64), bit for bit those of attmask.randomness.

const GOLDEN = 0x9e3779b97f4a7c15n;
const MIX_1 = 0xbf58476d1ce4e5b9n;
const MIX_2 = 0x94d049bb133111ebn;
const cut = (number) => BigInt.asUintN(64, number);

function mix(x) {
  x = cut((x ^ (x >> 30n)) * MIX_1);
  x = cut((x ^ (x >> 27n)) * MIX_2);
  return x ^ (x >> 31n);
}

function crc32(text) {
  let sum = 0xffffffff;
  for (const byte of new TextEncoder().encode(text)) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit++) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
  }
  return (sum ^ 0xffffffff) >>> 0;
}

const withCounter = (state, counter) => mix(cut((state ^ cut(BigInt(counter))) * MIX_1 + GOLDEN));
const asShare = (bits) => Number(bits >> 11n) * 2 ** -53;

function hashed(purpose, counters) {
  return counters.reduce(withCounter, BigInt(crc32(purpose)));
}

/** A number in [0, 1) for one purpose and its counters. */
function uniform(purpose, ...counters) {
  return asShare(hashed(purpose, counters));
}

/** `count` such numbers, whose last counter is 0, 1, 2, … */
function uniforms(purpose, counters, count) {
  const state = hashed(purpose, counters);
  return Float64Array.from({ length: count }, (_, i) => asShare(withCounter(state, i)));
}
