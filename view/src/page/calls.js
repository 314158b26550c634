// Draws MPI calls at the lower edge of their rows, searches of queues in the calls, and fragments on messages' bars.

const QUEUES = ["posted receive queue", "unexpected message queue"];

const functionOf = (call) => about.functions[spans.calls.function[call]] ?? "MPI call";

function drawCalls({ pen, height }) {
  if (rows.calls === 0) return;
  const grain = rows.calls < 4 ? 3 : 1;
  const tall = rows.calls - (rows.calls > 4 ? 1 : 0);
  const draw = (kind, lane, top, high, after) => eachSpan(kind, lane, grain, (x1, x2, at, share) => {
    const wide = x2 - x1 - (x2 - x1 > 4 ? 1 : 0);
    pen.globalAlpha = 0.15 + 0.85 * share;
    pen.fillStyle = ink[kind];
    pen.fillRect(x1, top, wide, high);
    pen.globalAlpha = 1;
    after?.(x1, wide, at);
    drawn[kind] += 1;
  });
  pen.textAlign = "left";
  rows.all.forEach(({ lanes }, row) => {
    const top = topOfRow(row) + rows.room;
    if (top > height || top + rows.calls < AXIS) return;
    for (const lane of lanes) {
      draw("calls", lane, top, tall, tall < 11 ? undefined : (x, wide, at) => {
        if (wide < 30 || pen.measureText(functionOf(at)).width > wide - 8) return;
        pen.fillStyle = ink.text;
        pen.fillText(functionOf(at), x + 4, top + tall / 2);
      });
      draw("searches", lane, top + tall * 0.75, tall * 0.25);
    }
  });
}

/// Returns the call and the search at a point; undefined if there is neither.
function callAt(x, y) {
  const row = rowAt(y);
  if (x < GUTTER || !row || (y - AXIS + state.above) % rows.height < rows.room) return undefined;
  const [time, margin] = [drawn.timeAt(x), drawn.timeAt(x + 1) - drawn.timeAt(x)];
  for (const lane of row.lanes) {
    const [call, search] = ["calls", "searches"].map((kind) => spanAt(kind, lane, time, margin));
    if (call !== undefined || search !== undefined) return { call, search };
  }
  return undefined;
}

function callWords({ call, search }) {
  const { begun, ended } = spans.calls;
  const lines = [];
  if (call !== undefined) lines.push(`<b>${plain(functionOf(call))}, ${duration(ended[call] - begun[call])}</b>from ${moment(begun[call], 1)}`);
  if (search !== undefined) lines.push(searchWords(search));
  return lines.join("<br>");
}

function searchWords(search) {
  const s = spans.searches;
  const peer = s.peer[search] < 0 ? "any rank" : `rank ${s.peer[search]} of the communicator`;
  const length = s.length[search] < 0 ? "" : ` of length ${count(s.length[search])}`;
  const found = s.isFound[search] < 0 ? " by a probe" : s.isFound[search] > 0 ? ": found" : ": not found";
  const took = duration(s.ended[search] - s.begun[search]);
  const [low, high] = [s.tag[search], s.tagHigh[search]];
  const tag = high === 0 || high === -1 ? (low === -1 && high === -1 ? "any" : high * 2 ** 32 + (low >>> 0)) : wideTag(high, low);
  return `search of the ${QUEUES[s.queue[search]]}${length}, for ${peer}, tag ${tag}${found}, ${took}`;
}

/// Returns the message that a search, as `callAt` returns it, looks for.
function searchedAt(at) {
  const message = at.search === undefined ? -1 : spans.searches.message[at.search];
  return message < 0 ? undefined : message;
}

/// Names the MPI calls in which a side of a message begins, and in which the program learns that it has ended.
function callsOf(lane, begin, end) {
  const call = (time) => (time === undefined ? undefined : spanAt("calls", lane, time));
  const [first, last] = [call(begin), call(end)];
  const missing = about.ranks[rankOf(lane)].has_calls ? "one that cannot wait" : "not recorded";
  const names = [begin === undefined ? "unknown" : first === undefined ? missing : functionOf(first)];
  if (last !== undefined && last !== first) names.push(`told in ${functionOf(last)}`);
  return plain(names.join(", "));
}

/// Returns the key of the fragments of a message's side; side 0 is the sender's.
const keyOf = (place, side) => 2 * place + side;

/// Draws the fragments after the first as lines across the bar of their side.
function drawFragments({ pen }, { place, side, top, height }) {
  pen.fillStyle = ink.chosen;
  eachSpan("fragments", keyOf(place, side === "came" ? 1 : 0), 2, (x) => {
    pen.fillRect(x, top, 1, height);
    drawn.fragments += 1;
  });
}

function fragmentAt(x, { place, side }) {
  const key = keyOf(place, side === "came" ? 1 : 0);
  const at = spanAt("fragments", key, drawn.timeAt(x), drawn.timeAt(x + 3) - drawn.timeAt(x));
  if (at === undefined) return "";
  const { key: keys, begun } = spans.fragments;
  const step = keys[at - 1] === key ? `, ${duration(begun[at] - begun[at - 1])} after the one before` : "";
  return `<br>fragment ${partWords(at)}${step}, by the ${clockOf(at)}'s clock`;
}

const clockOf = (fragment) => (spans.fragments.isByAdapter[fragment] > 0 ? "adapter" : "host");
const partWords = (fragment) => {
  const { offset, bytes: length } = spans.fragments;
  return offset[fragment] < 0 ? "of an unknown part" : `at ${count(offset[fragment])}, ${bytes(length[fragment])}`;
};

const MOST_LISTED = 200;

/// Makes a table of a side's fragments, with the time since the first bytes and since the previous fragment.
function fragmentTable(place, side, first) {
  const key = keyOf(place, side);
  const [begin, end] = [spanFrom("fragments", key, -Infinity), spanFrom("fragments", key, Infinity)];
  if (begin === end) return "";
  const { begun } = spans.fragments;
  const lines = [];
  for (let at = begin; at < Math.min(end, begin + MOST_LISTED); at += 1) {
    const before = at > begin ? begun[at - 1] : first ?? begun[at];
    lines.push(`<tr><td>${duration(begun[at] - (first ?? begun[begin]))}</td><td>${partWords(at)} (${clockOf(at)})</td><td>+${duration(begun[at] - before)}</td></tr>`);
  }
  const more = end - begin > MOST_LISTED ? `<p>and ${count(end - begin - MOST_LISTED)} more.</p>` : "";
  return `<h3>Fragments, since the first bytes</h3><table class="times">${lines.join("")}</table>${more}`;
}

/// Makes a table of the searches for a message, with the time since the message's first moment.
function searchTable(place) {
  const { message, begun } = spans.searches;
  const lines = [];
  for (let at = 0; at < spans.searches.key.length; at += 1) {
    if (message[at] === place) lines.push(`<tr><td>${duration(begun[at] - messages.first[place])}</td><td>${searchWords(at)}</td></tr>`);
  }
  return lines.length > 0 ? `<h3>Searches</h3><table class="times">${lines.join("")}</table>` : "";
}
