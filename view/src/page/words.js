// The page's words and number formats.

const PROTOCOLS = ["inline", "copied", "read", "fragments", "shared memory", "loopback", "unknown"];
const PROTOCOL_MEANS = [
  "inline in the work request", "copied into a buffer, sent, and copied out", "rendezvous: read by the receiver",
  "rendezvous: sent in copied fragments", "through shared memory of the host", "to itself: copied once", "not recorded",
];
const REASONS = [
  "by its size", "the send is synchronous", "its data is not contiguous", "its memory could not be registered",
  "flow control of the receiver", "a limit of the adapter", "the receiver is the sender", "the receiver is on this host",
  "reason not recorded",
];
const WAITS = ["nothing", "late sender", "late receiver", "no progress", "late wait", "connection", "queue"];
const WAIT_MEANS = [
  "no process waited for it", "the receiver waited in MPI, and the send had not been called",
  "the sender waited in MPI, and the receive had not been called",
  "the sender waited in MPI, and the receiver had called its receive but was outside MPI",
  "no process waited; it was there, and the receiver had not asked for it yet", "the connection was being made",
  "no room in a queue of the adapter",
];
const INCIDENTS = [
  "request queued", "request posted from the queue", "receiver not ready", "memory registered", "memory deregistered",
  "adapter event", "port event",
];

const dashed = (word) => word.replaceAll(" ", "-");

const NARROW = "\u202f";

/// Formats as 1 234 567.
function count(number) {
  return Math.round(number).toString().replace(/\B(?=(\d{3})+$)/g, NARROW);
}

const counted = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/// Formats with three or four significant digits.
function short(value) {
  const size = Math.abs(value);
  return value.toFixed(size >= 100 || Number.isInteger(value) ? 0 : size >= 10 ? 1 : 2);
}

function bytes(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  for (; number >= 1024 && unit < 5; unit += 1) number /= 1024;
  return short(number) + NARROW + units[unit];
}

const unitOf = (size) => [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]].find(([unit]) => size >= unit) ?? [1, "ns"];

function duration(nanoseconds) {
  if (!Number.isFinite(nanoseconds)) return "unknown";
  // A value that would be rounded to 1000 of a unit is 1 of the next.
  const [unit, name] = unitOf(Math.abs(nanoseconds) / 0.9995);
  return short(nanoseconds / unit) + NARROW + name;
}

/// Formats a time of the run, with a resolution of `step` nanoseconds, in the unit of `largest`.
function moment(nanoseconds, step, largest = Math.abs(nanoseconds)) {
  const [unit, name] = unitOf(Math.max(largest, step));
  const digits = Math.max(0, Math.min(9, Math.ceil(Math.log10(unit / step) - 1e-9)));
  return (nanoseconds / unit).toFixed(digits) + NARROW + name;
}

const UNITS = { ns: 1, us: 1e3, "µs": 1e3, ms: 1e6, s: 1e9 };
const SIZES = { b: 1, k: 1024, m: 1024 ** 2, g: 1024 ** 3, t: 1024 ** 4 };

/// Parses `12.5us` to nanoseconds; a number alone is nanoseconds.
function timeOf(text) {
  const parts = /^(-?[\d.]+)\s*(ns|us|µs|ms|s)?$/.exec(text.trim());
  return parts && Number.isFinite(+parts[1]) ? +parts[1] * UNITS[parts[2] ?? "ns"] : undefined;
}

/// Parses `64K` to bytes.
function sizeOf(text) {
  const parts = /^([\d.]+)\s*(?:([kmgt])(?:i?b)?|b)?$/i.exec(text.trim());
  return parts && Number.isFinite(+parts[1]) ? +parts[1] * SIZES[(parts[2] ?? "b").toLowerCase()] : undefined;
}

const plain = (text) => String(text).replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);

/// Returns the index, from `low` to `high`, of the first item for which `isBefore` is false (binary search).
function countBefore(high, isBefore, low = 0) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (isBefore(middle)) low = middle + 1;
    else high = middle;
  }
  return low;
}

function groups(all, groupOf) {
  const found = new Map();
  for (const each of all) {
    const members = found.get(groupOf(each));
    if (members) members.push(each);
    else found.set(groupOf(each), [each]);
  }
  return found;
}

const element = (id) => document.getElementById(id);

/// Calls `answer` once the calls pause.
function rested(milliseconds, answer) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(answer, milliseconds);
  };
}
