// The view: a span of time, colours, a search, rows and one message. It is stored in the address after `#`:
// `#t=1.2ms..1.3ms&m=17&c=wait&q=tag:3&r=0,3&o=3`.

const SPAN = Math.max(about.span, 1);
/// Shortest time that the view shows, in nanoseconds.
const SHORTEST = 20;

/// The initial colouring: by protocol if the trace has protocols.
const USUAL = about.bands.protocols.every((place) => PROTOCOLS[place] === "unknown") ? "wait" : "protocol";

const state = {
  from: 0, to: SPAN, colour: USUAL, query: "", chosen: undefined,
  /// Ranks that have rows; undefined: all.
  ranks: undefined,
  /// Ranks with a row for each lane; undefined: none.
  opened: undefined,
  /// Height of the rows as a multiple of the height at which all fit, and pixels of them above the drawing.
  stretch: 1, above: 0,
  theme: undefined,
};

const changes = { time: [], colour: [], query: [], chosen: [], rows: [], theme: [] };

/// Changes parts of the view, and notifies their subscribers.
function change(what) {
  const before = { ...state };
  Object.assign(state, what);
  keepInside();
  const told = new Set();
  const tell = (name, keys) => {
    if (keys.some((key) => before[key] !== state[key])) changes[name].forEach((answer) => told.add(answer));
  };
  tell("time", ["from", "to"]);
  tell("colour", ["colour"]);
  tell("query", ["query"]);
  tell("chosen", ["chosen"]);
  tell("rows", ["ranks", "opened", "stretch", "above"]);
  tell("theme", ["theme"]);
  told.forEach((answer) => answer());
  if (told.size > 0) keepAddress();
}

function keepInside() {
  const margin = SPAN * 0.02;
  const length = Math.min(Math.max(state.to - state.from, SHORTEST), SPAN + 2 * margin);
  const middle = (state.from + state.to) / 2;
  state.from = Math.min(Math.max(middle - length / 2, -margin), SPAN + margin - length);
  state.to = state.from + length;
}

const show = (from, to) => change({ from, to });
const showWhole = () => show(0, SPAN);

/// Multiplies the shown time by `factor` around a moment.
function zoom(factor, around = (state.from + state.to) / 2) {
  const least = SHORTEST / (state.to - state.from);
  const by = Math.max(factor, least);
  show(around - (around - state.from) * by, around + (state.to - around) * by);
}

const pan = (share) => {
  const by = (state.to - state.from) * share;
  show(state.from + by, state.to + by);
};

const isWhole = () => state.from <= 0 && state.to >= SPAN;

function addressed() {
  const parts = [];
  if (!isWhole()) parts.push(`t=${precise(state.from)}..${precise(state.to)}`);
  if (state.chosen !== undefined) parts.push(`m=${state.chosen}`);
  if (state.colour !== USUAL) parts.push(`c=${state.colour}`);
  if (state.query) parts.push(`q=${encodeURIComponent(state.query).replaceAll("%3A", ":").replaceAll("%2C", ",")}`);
  if (state.ranks) parts.push(`r=${state.ranks.join(",")}`);
  if (state.opened) parts.push(`o=${state.opened.join(",")}`);
  if (state.theme) parts.push(`theme=${state.theme}`);
  return parts.join("&");
}
const precise = (time) => Math.round(time * 10) / 10;

const keepAddress = rested(250, () => history.replaceState(undefined, "", `#${addressed()}`));

/// Parses the view of an address; missing parts have their initial values.
function fromAddress() {
  const parts = Object.fromEntries(location.hash.slice(1).split("&").map((part) => part.split(/=(.*)/s, 2)));
  const times = (parts.t ?? "").split("..").map(timeOf);
  const isTime = times.length === 2 && times.every((time) => time !== undefined) && times[0] < times[1];
  const place = parts.m === undefined ? NaN : Number(parts.m);
  const ranksOf = (text = "", isOne = () => true) => {
    const ranks = text.split(",").filter((rank) => /^\d+$/.test(rank)).map(Number).filter((rank) => rank < about.ranks.length);
    return ranks.some(isOne) ? ranks.filter(isOne) : undefined;
  };
  let query = "";
  try {
    query = decodeURIComponent(parts.q ?? "");
  } catch {
    // A truncated address counts as one without a search.
  }
  return {
    from: isTime ? times[0] : 0, to: isTime ? times[1] : SPAN,
    chosen: Number.isInteger(place) && place >= 0 && place < TOTAL ? place : undefined,
    colour: Object.hasOwn(schemes, parts.c ?? "") ? parts.c : USUAL,
    query,
    ranks: ranksOf(parts.r),
    opened: ranksOf(parts.o, hasThreads),
    theme: ["light", "dark"].includes(parts.theme) ? parts.theme : undefined,
  };
}
