// Arrays of the payload: base64 of little-endian numbers, or of packed bits.

/** The payload with its shared texts in their places, where {"shared": number} stands. */
function withShared({ shared, ...payload }) {
  const put = (value) => {
    if (Array.isArray(value)) return value.map(put);
    if (value === null || typeof value !== "object") return value;
    const keys = Object.keys(value);
    if (keys.length === 1 && keys[0] === "shared") return shared[value.shared];
    return Object.fromEntries(keys.map((key) => [key, put(value[key])]));
  };
  return put(payload);
}

const KINDS = { f4: Float32Array, i1: Int8Array, u1: Uint8Array, i4: Int32Array };
const decoded = new WeakMap();

/** The flat typed array of {dtype, shape, data}; each is decoded once. */
function decode(array) {
  if (!decoded.has(array)) decoded.set(array, decodeNow(array));
  return decoded.get(array);
}

function decodeNow({ dtype, shape, data }) {
  const text = atob(data);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return dtype === "bits" ? unpackBits(bytes, shape) : new KINDS[dtype](bytes.buffer);
}

/** Bits that numpy.packbits packed over the last axis, the highest bit first. */
function unpackBits(bytes, shape) {
  const length = shape.at(-1);
  const stride = Math.ceil(length / 8);
  const rows = shape.slice(0, -1).reduce((product, side) => product * side, 1);
  const bits = new Uint8Array(rows * length);
  for (let row = 0; row < rows; row++) {
    for (let i = 0; i < length; i++) {
      bits[row * length + i] = (bytes[row * stride + (i >> 3)] >> (7 - (i & 7))) & 1;
    }
  }
  return bits;
}

/** The part of an array below the first indices, as a view on it. */
function part(array, ...indices) {
  const inner = array.shape.slice(indices.length).reduce((product, side) => product * side, 1);
  const place = indices.reduce((sum, index, axis) => sum * array.shape[axis] + index, 0);
  return decode(array).subarray(place * inner, (place + 1) * inner);
}
