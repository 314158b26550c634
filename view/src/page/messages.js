// The summaries of all messages, in columns ordered by first time. Times are nanoseconds from the run's start. Filled
// chunk by chunk while the page already shows the run; all other scripts only read.

const about = JSON.parse(element("about").textContent);
const TOTAL = about.messages;
/// Number of messages per stored last time, so that a search for a time can skip them.
const STRIDE = 1024;

const messages = {
  loaded: 0,
  first: new Float64Array(TOTAL), last: new Float64Array(TOTAL), from: new Float64Array(TOTAL), to: new Float64Array(TOTAL),
  took: new Float64Array(TOTAL), sender: new Uint32Array(TOTAL), receiver: new Uint32Array(TOTAL),
  communicator: new Uint32Array(TOTAL), tag: new Int32Array(TOTAL), tagHigh: new Uint32Array(TOTAL), bytes: new Float64Array(TOTAL),
  protocol: new Uint8Array(TOTAL), reason: new Uint8Array(TOTAL), wait: new Uint8Array(TOTAL), waited: new Float64Array(TOTAL),
  detail: new Uint8Array(TOTAL),
  /// The last moment of each STRIDE messages.
  ends: new Float64Array(Math.ceil(TOTAL / STRIDE)),
  standing: Array.from({ length: about.details + 1 }, () => []),
};

/// Returns a tag of 64 bits, from its halves.
const wideTag = (high, low) => `0x${((BigInt(high >>> 0) << 32n) | BigInt(low >>> 0)).toString(16)}`;
const tagOf = (place) => (about.communicators[messages.communicator[place]]?.has_wide_tags
  ? wideTag(messages.tagHigh[place], messages.tag[place]) : String(messages.tag[place]));

const rankOf = (lane) => about.lanes[lane]?.rank ?? 0;
const is = { complete: () => messages.loaded === TOTAL };

/// Reads all chunks; calls `progress` after each and lets the browser draw.
async function readMessages(progress) {
  for (let chunk = 0; chunk * about.chunk < TOTAL; chunk += 1) {
    takeChunk(await columnsOf(`messages-${chunk}`), messages.loaded);
    progress();
    await new Promise((resume) => setTimeout(resume));
  }
}

function takeChunk(columns, begin) {
  const m = messages;
  const inOrder = [m.first, m.from, m.to, m.last, m.tag, m.took, m.sender, m.receiver, m.communicator, m.bytes, m.protocol,
    m.reason, m.wait, m.waited, m.detail, m.tagHigh];
  let length = 0;
  columns.forEach((column, place) => {
    // A tag is an Int32; its zigzag encoding may not fit into one.
    if (inOrder[place] === m.tag) all(column).forEach((value, at) => { m.tag[begin + at] = signed(value); });
    else length = numbers(column, inOrder[place], begin);
  });
  // The first of a chunk is counted from the start of the run.
  let before = 0;
  for (let place = begin; place < begin + length; place += 1) {
    before = m.first[place] = before + signed(m.first[place]);
    m.from[place] = before + signed(m.from[place]);
    m.to[place] = m.from[place] + signed(m.to[place]);
    m.last[place] = m.to[place] + signed(m.last[place]);
    m.took[place] = distance(m.took[place]);
    const stride = Math.floor(place / STRIDE);
    m.ends[stride] = Math.max(m.ends[stride], m.last[place]);
    m.standing[m.detail[place]].push(place);
  }
  m.loaded = begin + length;
}

const begunBefore = (time) => countBefore(messages.loaded, (place) => messages.first[place] < time);

/// Calls `visitor` with each message that passes the filter and overlaps a span of time.
function visit(from, to, visitor) {
  const { ends, last } = messages;
  const high = begunBefore(to);
  for (let stride = 0; stride * STRIDE < high; stride += 1) {
    if (ends[stride] < from) continue;
    const end = Math.min(high, (stride + 1) * STRIDE);
    for (let place = stride * STRIDE; place < end; place += 1) {
      if (last[place] >= from && passes[place] !== 0) visitor(place);
    }
  }
}
