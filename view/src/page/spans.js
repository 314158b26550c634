// Spans of time beside the messages: MPI calls, searches of queues and one-sided operations by lane, fragments by
// message and side, in columns ordered by key and then by time (spans.rs). Drawing takes a binary search per pixel.

/// Columns of each kind, besides key, begin and end.
const FIELDS = {
  calls: ["function"], searches: ["queue", "isFound", "length", "peer", "tag", "tagHigh", "message"], fragments: ["offset", "bytes", "isByAdapter"],
  operations: ["status"],
};
/// Spans of each kind; empty until the kind has been read completely.
const spans = Object.fromEntries(Object.keys(FIELDS).map((kind) => [kind, { key: [] }]));

async function readSpans(kind) {
  const names = ["key", "begun", "ended", ...FIELDS[kind]];
  const all = Object.fromEntries(names.map((name) => [name, new Float64Array(about[kind])]));
  // Total length of all spans before each span.
  all.spent = new Float64Array(about[kind] + 1);
  let [key, end, place] = [0, 0, 0];
  for (let chunk = 0; place < about[kind]; chunk += 1) {
    const columns = await columnsOf(`${kind}-${chunk}`);
    const next = place + lengthOf(columns[0]);
    columns.forEach((column, at) => numbers(column, all[names[at]], place));
    for (; place < next; place += 1) {
      if (all.key[place] > 0) end = 0;
      key = all.key[place] += key;
      const begun = all.begun[place] = end + signed(all.begun[place]);
      end = all.ended[place] += begun;
      all.spent[place + 1] = all.spent[place] + end - begun;
      for (const name of FIELDS[kind]) all[name][place] = signed(all[name][place]);
    }
    await new Promise((resume) => setTimeout(resume));
  }
  spans[kind] = all;
}

/// Returns the index, from `low` on, of the key's first span that ends at `time` or later; if none does, of the next
/// key's first.
function spanFrom(kind, key, time, low = 0) {
  const { key: keys, ended } = spans[kind];
  return countBefore(keys.length, (at) => keys[at] < key || (keys[at] === key && ended[at] < time), low);
}

/// Returns the index of the key's span at `time`, with a tolerance of `margin`; undefined if there is none.
function spanAt(kind, key, time, margin = 0) {
  const at = spanFrom(kind, key, time - margin);
  return spans[kind].key[at] === key && spans[kind].begun[at] <= time + margin ? at : undefined;
}

/// Calls `draw(x1, x2, at, share)` for the key's spans in view: for each that is at least `grain` pixels wide, and for
/// those within `grain` pixels together, of which `at` is the first and which cover a share of these pixels.
function eachSpan(kind, key, grain, draw) {
  const { key: keys, begun, ended, spent } = spans[kind];
  const perPixel = (state.to - state.from) / Math.max(drawn.width - GUTTER, 1);
  for (let at = spanFrom(kind, key, state.from), end; keys[at] === key && begun[at] <= state.to; at = end) {
    const x1 = Math.max(drawn.xOf(begun[at]), GUTTER);
    end = Math.max(spanFrom(kind, key, drawn.timeAt(x1 + grain), at), at + 1);
    const x2 = Math.min(Math.max(drawn.xOf(ended[end - 1]), x1 + grain), drawn.width);
    draw(x1, x2, at, Math.min((spent[end] - spent[at]) / ((x2 - x1) * perPixel), 1));
  }
}
