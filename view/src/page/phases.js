// Phases: bars in the rows of sender and receiver with the phases of a message, if few messages are visible.
// Overlapping bars of a row are stacked.

const MOST_BARS = 400;
const PHASES = {
  prepare: "prepare", wait: "wait for the other side", transfer: "transfer", finish: "finish", untold: "not asked for",
};

/// Returns the bars of messages, `{ place, side, lane, from, to, phases, top, height }`; nothing until their lives are
/// read.
function barsOf(places, later) {
  const bars = [];
  for (const place of places) {
    const life = lifeOf(place, later);
    if (!life) return undefined;
    add(bars, place, "sent", messages.sender[place], sendPhases(life), stretchOf(life, SEND_NAMES));
    add(bars, place, "came", messages.receiver[place], receivePhases(life), stretchOf(life, RECEIVE_NAMES));
  }
  return bars;
}

function add(bars, place, side, lane, phases, stretch) {
  if (stretch && rows.of[lane] >= 0) bars.push({ place, side, lane, from: stretch[0], to: stretch[1], phases });
}

/// Lays out the bars in their rows, and returns for each message the ends of its arrow.
function layBars(bars) {
  const anchors = new Map();
  const apart = (state.to - state.from) * 0.002;
  for (const [row, members] of groups(bars, (bar) => rows.of[bar.lane])) {
    members.sort((one, other) => one.from - other.from);
    const ends = [];
    for (const bar of members) {
      let tier = ends.findIndex((end) => end + apart < bar.from);
      if (tier < 0) tier = ends.length;
      ends[tier] = bar.to;
      bar.tier = tier;
    }
    const room = rows.room - Math.min(6, rows.room * 0.2);
    const tall = Math.min(Math.max(room / ends.length, 2.2), 17);
    const top = topOfRow(row) + Math.max((rows.room - tall * ends.length) / 2, 1);
    for (const bar of members) {
      bar.height = Math.max(tall - (tall > 6 ? 3 : 0.6), 1.6);
      bar.top = Math.min(top + bar.tier * tall, topOfRow(row) + rows.room - bar.height - 1);
      const anchor = anchors.get(bar.place) ?? {};
      anchor[bar.side] = bar.top + bar.height / 2;
      anchors.set(bar.place, anchor);
    }
  }
  return anchors;
}

function drawBars({ pen, width }, bars, xOf) {
  const inside = (x) => Math.min(Math.max(x, GUTTER - 4), width + 4);
  for (const bar of bars) {
    const [x1, x2] = [inside(xOf(bar.from)), inside(xOf(bar.to))];
    if (x2 < GUTTER || x1 > width) continue;
    pen.fillStyle = ink.grid;
    pen.fillRect(x1, bar.top, Math.max(x2 - x1, 1), bar.height);
    const strength = state.chosen === undefined || state.chosen === bar.place ? 1 : 0.5;
    for (const [kind, from, to] of bar.phases) {
      const [left, right] = [inside(xOf(from)), inside(xOf(to))];
      if (right > left) drawPhase(pen, kind, colourOf(kind, bar.place), left, bar.top, Math.max(right - left, 0.8), bar.height, strength);
    }
    drawFragments({ pen }, bar);
    if (bar.place === state.chosen) {
      pen.lineWidth = 2;
      pen.strokeStyle = ink.chosen;
      pen.strokeRect(x1 - 1, bar.top - 1, Math.max(x2 - x1, 1) + 2, bar.height + 2);
      pen.lineWidth = 1;
    }
  }
  drawPhaseNames(pen, bars, inside, xOf);
}

/// The transfer has the colour of the message's arrow.
const colourOf = (kind, place) => (kind === "transfer" ? ink[state.colour][schemes[state.colour].of(place)] : ink.phase[kind]);

/// Hatches waits, to be distinguishable without colour.
function drawPhase(pen, kind, colour, x, y, width, height, strength) {
  pen.fillStyle = colour;
  if (kind !== "wait") {
    // Many long transfers should not hide the arrows.
    pen.globalAlpha = strength * (kind === "transfer" ? 0.8 : 1);
    pen.fillRect(x, y, width, height);
    pen.globalAlpha = 1;
    return;
  }
  pen.globalAlpha = 0.45 * strength;
  pen.fillRect(x, y, width, height);
  pen.globalAlpha = height < 4 ? 1 : strength;
  if (height < 4) return;
  pen.save();
  pen.beginPath();
  pen.rect(x, y, width, height);
  pen.clip();
  pen.strokeStyle = ink.phase.wait;
  pen.lineWidth = 1.5;
  pen.beginPath();
  for (let at = Math.floor(x / 6) * 6 - height; at < x + width; at += 6) {
    pen.moveTo(at, y + height);
    pen.lineTo(at + height, y);
  }
  pen.stroke();
  pen.restore();
}

function drawPhaseNames(pen, bars, inside, xOf) {
  pen.textAlign = "left";
  for (const bar of bars) {
    if (bar.height < 13) continue;
    for (const [kind, from, to] of bar.phases) {
      const [left, right] = [inside(xOf(from)), inside(xOf(to))];
      const word = kind === "wait" ? "wait" : kind === "untold" ? "not asked for" : kind;
      const room = right - left - 10;
      if (room < pen.measureText(word).width) continue;
      const text = `${word} ${duration(to - from)}`;
      pen.fillStyle = kind === "wait" || kind === "untold" ? ink.text : ink.paper;
      pen.fillText(pen.measureText(text).width <= room ? text : word, left + 5, bar.top + bar.height / 2 + 0.5);
    }
  }
}

function barAt(x, y, bars, xOf) {
  const isAt = (bar) => y >= bar.top - 1 && y <= bar.top + bar.height + 1 && x >= xOf(bar.from) - 2 && x <= xOf(bar.to) + 2;
  return bars.find(isAt);
}
