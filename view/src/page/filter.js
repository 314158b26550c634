// The search: terms `key:value`, all of which a message must match. Commas separate alternatives; ranges are `A..B`,
// `>A`, `<A`.

/// Whether each message passes: 1 or 0 by index.
const passes = new Uint8Array(TOTAL).fill(1);
const filter = { isOn: false, count: TOTAL, error: "" };

const rankTest = (values, isEither) => {
  const ranks = values.map(placeOfRank);
  if (ranks.some((rank) => rank < 0)) return undefined;
  const wanted = new Set(ranks);
  const lanes = about.lanes.map((lane) => wanted.has(lane.rank));
  return isEither(lanes);
};
/// Returns the index of a rank by its name: `3`, or `1:3` in another world than the first.
const placeOfRank = (name) => about.ranks.findIndex((_, rank) => nameOf(rank) === name);

/// A test for tags of 64 bits.
const tagTest = (values) => {
  const wanted = new Set(values.map((text) => `0x${BigInt(text).toString(16)}`));
  return (place) => wanted.has(tagOf(place));
};

/// For each key: makes a test of a message's index from the values, or nothing if the values are invalid.
const KEYS = {
  tag: (values) => values.every((text) => /^0x[0-9a-f]+$/i.test(text)) ? tagTest(values) : within(values, (text) => (/^-?\d+$/.test(text) ? +text : undefined), messages.tag),
  size: (values) => within(values, sizeOf, messages.bytes),
  took: (values) => within(values, timeOf, messages.took),
  waited: (values) => within(values, timeOf, messages.waited),
  from: (values) => rankTest(values, (lanes) => (place) => lanes[messages.sender[place]]),
  to: (values) => rankTest(values, (lanes) => (place) => lanes[messages.receiver[place]]),
  rank: (values) => rankTest(values, (lanes) => (place) => lanes[messages.sender[place]] || lanes[messages.receiver[place]]),
  host: (values) => {
    const lanes = about.lanes.map((lane) => values.includes(about.ranks[lane.rank].host));
    return (place) => lanes[messages.sender[place]] || lanes[messages.receiver[place]];
  },
  comm: (values) => {
    const isOne = about.communicators.map((each) => values.some((value) => each.name === value || String(each.context) === value));
    return isOne.some(Boolean) ? (place) => isOne[messages.communicator[place]] : undefined;
  },
  protocol: (values) => among(values, PROTOCOLS, messages.protocol),
  wait: (values) => among(values, WAITS, messages.wait),
};
KEYS.peer = KEYS.rank;
KEYS.communicator = KEYS.comm;
KEYS.bytes = KEYS.size;

function within(values, read, column) {
  const ranges = values.map((value) => {
    const [, sign, rest] = /^(>=?|<=?)?(.*)$/.exec(value);
    const parts = rest.includes("..") ? rest.split("..") : undefined;
    if (parts) return [parts[0] === "" ? -Infinity : read(parts[0]), parts[1] === "" ? Infinity : read(parts[1])];
    const bound = read(rest);
    if (bound === undefined) return [undefined, undefined];
    if (sign?.startsWith(">")) return [sign === ">" ? bound + Number.EPSILON * Math.abs(bound) * 2 + 1e-9 : bound, Infinity];
    if (sign?.startsWith("<")) return [-Infinity, sign === "<" ? bound - Number.EPSILON * Math.abs(bound) * 2 - 1e-9 : bound];
    return [bound, bound];
  });
  if (ranges.flat().includes(undefined)) return undefined;
  if (ranges.length === 1) return (place) => column[place] >= ranges[0][0] && column[place] <= ranges[0][1];
  return (place) => ranges.some(([low, high]) => column[place] >= low && column[place] <= high);
}

function among(values, names, column) {
  const wanted = values.map((value) => names.findIndex((name) => dashed(name) === value.toLowerCase()));
  if (wanted.includes(-1)) return undefined;
  const isWanted = names.map((_, place) => wanted.includes(place));
  return (place) => isWanted[column[place]];
}

/// Returns the tests of a search, or an `error`.
function testsOf(text) {
  const tests = [];
  for (const term of text.split(/\s+/).filter(Boolean)) {
    const [, key, value] = /^([a-z]+):(.+)$/i.exec(term) ?? [];
    const make = key && Object.hasOwn(KEYS, key.toLowerCase()) ? KEYS[key.toLowerCase()] : undefined;
    if (!make) return { error: `“${term}” is not a term. Terms: ${Object.keys(KEYS).slice(0, 11).join(", ")}; for example tag:17` };
    const test = make(value.split(","));
    if (!test) return { error: `“${value}” is no ${key} of this run` };
    tests.push(test);
  }
  return { tests };
}

function applyFilter(text) {
  const { tests, error } = testsOf(text);
  filter.error = error ?? "";
  if (error) return;
  filter.isOn = tests.length > 0;
  passes.fill(1);
  filter.count = messages.loaded;
  if (!filter.isOn) return;
  let found = 0;
  for (let place = 0; place < messages.loaded; place += 1) {
    let isIn = 1;
    for (let each = 0; isIn === 1 && each < tests.length; each += 1) isIn = tests[each](place) ? 1 : 0;
    passes[place] = isIn;
    found += isIn;
  }
  filter.count = found;
}

const valuesOf = (text, key) => new RegExp(`(?:^|\\s)${key}:(\\S+)`).exec(text)?.[1].split(",") ?? [];

/// Returns the search with other values for a key; without any, without the key.
function withValues(text, key, values) {
  const rest = text.replace(new RegExp(`(^|\\s)${key}:\\S+`, "g"), "").trim();
  return values.length > 0 ? `${rest} ${key}:${values.join(",")}`.trim() : rest;
}
