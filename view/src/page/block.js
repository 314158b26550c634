// Reads blocks of the page's data: columns of numbers, compressed, as text. `block.rs` describes the format.

/// Returns the columns of a block as bytes. Each block is read once, and its text freed.
async function columnsOf(name) {
  const place = element(name);
  if (!place) throw new Error(`This file is truncated: “${name}” is missing.`);
  const packed = bytesOf(place.textContent);
  place.remove();
  const unpacked = new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate")));
  const buffer = await unpacked.arrayBuffer();
  const head = new DataView(buffer);
  const columns = [];
  let at = 4 + 4 * head.getUint32(0, true);
  for (let column = 0; column < head.getUint32(0, true); column += 1) {
    const length = head.getUint32(4 + 4 * column, true);
    columns.push(new Uint8Array(buffer, at, length));
    at += length;
  }
  return columns;
}

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at += 1) bytes[at] = letters.charCodeAt(at);
  return bytes;
}

/// Decodes the numbers of a column into an array from index `from` on; returns how many.
function numbers(column, into, from = 0) {
  let place = from;
  for (let at = 0; at < column.length; place += 1) {
    let byte = column[at++];
    let value = byte & 0x7f;
    for (let scale = 128; byte >= 0x80; scale *= 128) {
      byte = column[at++];
      value += (byte & 0x7f) * scale;
    }
    into[place] = value;
  }
  return place - from;
}

function lengthOf(column) {
  let length = 0;
  for (const byte of column) length += byte < 0x80 ? 1 : 0;
  return length;
}

function all(column, Kind = Float64Array) {
  const values = new Kind(lengthOf(column));
  numbers(column, values);
  return values;
}

/// Decodes a number whose sign is in the lowest bit.
const signed = (value) => (value % 2 === 0 ? value / 2 : -(value + 1) / 2);

/// Decodes a distance; NaN: unknown.
const distance = (value) => (value === 0 ? NaN : signed(value - 1));
