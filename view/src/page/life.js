// All times of a message, and its port and queue pair. Read chunk by chunk when the view comes near enough.

const MOMENTS = [
  "activated", "announced", "begun", "ended", "completed", "notified",
  "arrived", "unexpected", "requested", "posted", "matched", "put", "filled", "received", "told",
];
const SENT = 6;
/// Rendezvous protocols, and that by which the receiver reads.
const ANNOUNCED = new Set([2, 3, 4]);
const READ = 2;
const chunks = new Map();

/// Returns the chunk's columns, or a promise of them.
function chunkOf(place) {
  const number = Math.floor(place / about.chunk);
  if (!chunks.has(number)) {
    const reading = columnsOf(`life-${number}`).then((columns) => {
      const chunk = columns.map((column) => all(column));
      chunks.set(number, chunk);
      return chunk;
    });
    chunks.set(number, reading);
  }
  return chunks.get(number);
}

/// Returns the life of a message if it is in memory; otherwise fetches it and calls `later`.
function lifeOf(place, later) {
  const chunk = chunkOf(place);
  if (chunk instanceof Promise) {
    chunk.then(later, fail);
    return undefined;
  }
  return lifeIn(chunk, place);
}

function lifeIn(chunk, place) {
  const row = place % about.chunk;
  const life = { place };
  let at = messages.from[place];
  MOMENTS.forEach((name, number) => {
    if (number === SENT) at = messages.to[place];
    const far = distance(chunk[number][row]);
    if (!Number.isNaN(far)) life[name] = at += far;
  });
  const known = (column) => (chunk[column][row] > 0 ? chunk[column][row] : undefined);
  const placed = (column) => (chunk[column][row] > 0 ? chunk[column][row] - 1 : undefined);
  return Object.assign(life, {
    request: known(15), receiveRequest: known(16), number: known(17), port: placed(18), queuePair: placed(19),
    rails: known(20), byAdapter: about.stamped.filter((_, bit) => (chunk[21][row] >> bit) & 1),
  });
}

/// Returns when a message leaves: its rendezvous request, or its first bytes.
const leftOf = (life) => life.announced ?? life.begun;

/// Returns the phases of a side, each `[kind, from, to, what]`, in order.
function sendPhases(life) {
  const [left, end] = [leftOf(life), life.ended ?? life.completed];
  // A rendezvous waits for its receive. The sender does not see the begin of a read: with the match at the earliest.
  const isSeen = life.announced !== undefined && life.begun < end;
  const isRead = ANNOUNCED.has(messages.protocol[life.place]) && life.matched < end && !isSeen;
  const going = isRead ? Math.max(life.matched, left) : life.begun;
  return joined([
    ["prepare", life.activated, left ?? end, "until the first bytes, or the rendezvous request, leave"],
    ["wait", left, going > left ? going : undefined, "rendezvous: waits for the receive"],
    ["transfer", going, end, "the bytes leave"],
    ["finish", life.ended, life.completed, "until the request is complete"],
    ["untold", life.completed, life.notified, "until the caller asks"],
  ]);
}

function receivePhases(life) {
  const matched = life.matched ?? life.put ?? life.filled;
  // The adapter's timestamp shows that it came while the program computed.
  const came = life.posted !== undefined && life.arrived < matched ? Math.max(life.arrived, life.posted) : matched;
  return joined([
    ["prepare", life.requested, life.posted ?? undefined, "until the receive is posted"],
    ["wait", life.posted, came, "posted: waits for the message"],
    ["untold", came < matched ? came : undefined, matched, "arrived: until the program enters MPI"],
    ["wait", life.unexpected ?? undefined, matched, "unexpected: waits for its receive"],
    ["prepare", matched, life.put, "until the first bytes are in place"],
    ["transfer", life.put ?? matched, life.filled ?? life.received, "the bytes arrive in place"],
    ["finish", life.filled, life.received, "until the request is complete"],
    ["untold", life.received, life.told, "until the caller asks"],
  ]);
}

/// Keeps the phases of which both ends are known.
const joined = (phases) => phases.filter(([, from, to]) => from !== undefined && to !== undefined && to >= from);

/// Returns the first and the last moment of a side, or nothing.
function stretchOf(life, names) {
  const times = names.map((name) => life[name]).filter((time) => time !== undefined);
  return times.length > 0 ? [Math.min(...times), Math.max(...times)] : undefined;
}
const SEND_NAMES = MOMENTS.slice(0, SENT);
const RECEIVE_NAMES = MOMENTS.slice(SENT);
