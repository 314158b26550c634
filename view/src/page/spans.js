// Stretches of time beside the messages: calls of MPI, searches of queues and one-sided operations by lane, fragments by
// message and side. In columns, ordered by these keys and then by time. What is drawn is found from pixel to pixel, however many there are.

/// By kind, the columns beside key, begin and end.
const FIELDS = {
  calls: ["function"], searches: ["queue", "isFound", "length", "peer", "tag", "message"], fragments: ["offset", "bytes", "isByAdapter"],
  operations: ["status"],
};
/// By kind; none until all of it is read.
const spans = Object.fromEntries(Object.keys(FIELDS).map((kind) => [kind, { key: [] }]));

async function readSpans(kind) {
  const names = ["key", "begun", "ended", ...FIELDS[kind]];
  const all = Object.fromEntries(names.map((name) => [name, new Float64Array(about[kind])]));
  // The length of all before each.
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

/// The first of a key that ends at a time or later, from a place on; or what comes after the key.
function spanFrom(kind, key, time, low = 0) {
  const { key: keys, ended } = spans[kind];
  return countBefore(keys.length, (at) => keys[at] < key || (keys[at] === key && ended[at] < time), low);
}

/// What a key has at a time, give or take.
function spanAt(kind, key, time, margin = 0) {
  const at = spanFrom(kind, key, time - margin);
  return spans[kind].key[at] === key && spans[kind].begun[at] <= time + margin ? at : undefined;
}

/// Calls `draw(x1, x2, at, share)` for what a key has in view: one at least as wide as the grain, or those in the grain, of
/// which they take a share, from `at` on.
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
