// Input on the time line: wheel, drag, pinch and pointer.

function followInput() {
  const fingers = new Map();
  let moved = 0;
  line.addEventListener("wheel", (event) => {
    event.preventDefault();
    const by = event.deltaY * (event.deltaMode === 1 ? 16 : 1);
    if (event.altKey) stretchRows(Math.exp(-by * 0.002), event.offsetY);
    else if (event.shiftKey) change({ above: state.above + (by || event.deltaX) });
    else if (Math.abs(event.deltaX) > Math.abs(by)) pan(event.deltaX / (drawn.width - GUTTER));
    else zoom(Math.exp(Math.min(Math.max(by, -240), 240) * 0.0022), drawn.timeAt(Math.max(event.offsetX, GUTTER)));
  }, { passive: false });
  line.addEventListener("pointerdown", (event) => {
    line.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, event);
    moved = 0;
  });
  line.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) {
      point(event);
      return;
    }
    const other = [...fingers.values()].find((finger) => finger.pointerId !== event.pointerId);
    if (other) pinch(before, event, other);
    else drag(before, event);
    moved += Math.hypot(event.offsetX - before.offsetX, event.offsetY - before.offsetY);
    fingers.set(event.pointerId, event);
  });
  const end = (event) => {
    if (fingers.delete(event.pointerId) && event.type === "pointerup" && fingers.size === 0 && moved < 5) choose(event);
  };
  line.addEventListener("pointerup", end);
  line.addEventListener("pointercancel", end);
  line.addEventListener("pointerleave", hideTip);
  line.addEventListener("dblclick", (event) => {
    const place = messageAt(event.offsetX, event.offsetY);
    if (place === undefined) zoom(0.25, drawn.timeAt(event.offsetX));
    else goTo(place);
  });
}

function drag(before, event) {
  const perPixel = (state.to - state.from) / (drawn.width - GUTTER);
  const by = (before.offsetX - event.offsetX) * perPixel;
  change({ from: state.from + by, to: state.to + by, above: state.above + before.offsetY - event.offsetY });
}

/// Zooms so that the times under two fingers stay under them.
function pinch(before, event, other) {
  const [was, now] = [before.offsetX - other.offsetX, event.offsetX - other.offsetX];
  if (Math.abs(now) > 10 && Math.abs(was) > 10) zoom(Math.min(Math.max(was / now, 0.5), 2), drawn.timeAt(other.offsetX));
}

function stretchRows(factor, y = line.clientHeight / 2) {
  const stretch = Math.min(Math.max(state.stretch * factor, 1), 60);
  const at = (state.above + y - AXIS) / rows.height;
  change({ stretch, above: at * rows.height * (stretch / state.stretch) - (y - AXIS) });
}

function messageAt(x, y) {
  if (x < GUTTER || y < AXIS) return undefined;
  const call = callAt(x, y);
  return call ? searchedAt(call) : barAt(x, y, drawn.bars, drawn.xOf)?.place ?? arrowAt(x, y, drawn.places, drawn.xOf, drawn.anchors);
}

function choose(event) {
  const { offsetX: x, offsetY: y } = event;
  if (x < GUTTER) {
    const row = rowAt(y);
    if (row && hasThreads(row.rank)) openOrClose(row.rank);
    else if (row) search(withValues(state.query, "rank", [nameOf(row.rank)]));
    return;
  }
  change({ chosen: messageAt(x, y) });
}

function hideTip() {
  element("tip").hidden = true;
}

function point({ offsetX: x, offsetY: y }) {
  const tip = element("tip");
  const mark = markAt(x, y, drawn.marks);
  const call = mark ? undefined : callAt(x, y);
  const place = mark || call ? undefined : messageAt(x, y);
  const row = x < GUTTER ? rowAt(y) : undefined;
  if (mark) tip.innerHTML = `<b>${plain(moment(mark.members[0].time, 1))}</b>${plain(wordsOf(mark))}`;
  else if (call) tip.innerHTML = callWords(call);
  else if (place !== undefined) {
    const bar = barAt(x, y, drawn.bars, drawn.xOf);
    tip.innerHTML = brief(place) + (bar ? fragmentAt(x, bar) : "");
  }
  else if (row) tip.innerHTML = aboutRank(row.rank);
  tip.hidden = !mark && !call && place === undefined && !row;
  line.style.cursor = place === undefined ? "" : "pointer";
  if (tip.hidden) return;
  const [right, low] = [x + 16 + tip.offsetWidth > line.clientWidth, y + 16 + tip.offsetHeight > line.clientHeight];
  tip.style.left = `${right ? x - 12 - tip.offsetWidth : x + 14}px`;
  tip.style.top = `${low ? y - 10 - tip.offsetHeight : y + 14}px`;
}

function brief(place) {
  const m = messages;
  const lines = [
    `<b>rank ${nameOf(rankOf(m.sender[place]))} → rank ${nameOf(rankOf(m.receiver[place]))}, ${bytes(m.bytes[place])}, tag ${tagOf(place)}</b>`,
    `${PROTOCOLS[m.protocol[place]]}; ${duration(m.to[place] - m.from[place])} on its way, ${duration(m.took[place])} in all`,
  ];
  if (m.wait[place] > 0) lines.push(`<br>${WAITS[m.wait[place]]}: waited ${duration(m.waited[place])}`);
  return lines.join("");
}

function aboutRank(rank) {
  const { program, pid, threads, clock_error: error } = about.ranks[rank];
  const clock = error === null ? "clock not compared" : `clock exact to ±${duration(error)}`;
  const apart = hasThreads(rank) ? `<br>${counted(threads.length, "thread")}: a click shows them ${isOpened(rank) ? "in one row" : "apart"}` : "";
  return `<b>rank ${nameOf(rank)} on ${plain(hostOf(rank))}</b>${plain(program)} (process ${pid}); ${clock}${apart}`;
}

/// Shows a message from its first to its last moment, in the rows of its two ranks.
function goTo(place, withRows = true) {
  const m = messages;
  const [from, to] = [m.first[place], m.last[place]];
  const margin = Math.max((to - from) * 0.12, 20);
  const ranks = [...new Set([rankOf(m.sender[place]), rankOf(m.receiver[place])])].sort((one, other) => one - other);
  const few = withRows && about.ranks.length > 8;
  change({ from: from - margin, to: to + margin, chosen: place, ...(few ? { ranks, stretch: 1, above: 0 } : {}) });
}

/// Chooses the next or previous message that passes the search and is in a row.
function step(by) {
  let place = state.chosen ?? begunBefore((state.from + state.to) / 2) - (by > 0 ? 1 : 0);
  do place += by; while (place >= 0 && place < messages.loaded && (passes[place] === 0 || !isInRows(place)));
  if (place < 0 || place >= messages.loaded) return;
  const [from, to] = [messages.first[place], messages.last[place]];
  const isSeen = from >= state.from && to <= state.to;
  const length = Math.max(state.to - state.from, (to - from) * 1.25);
  change({ chosen: place, ...(isSeen ? {} : { from: (from + to - length) / 2, to: (from + to + length) / 2 }) });
}
