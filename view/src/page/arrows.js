// Arrows: a line from the departure of a message to its arrival, coloured by class. If many messages are visible, only
// the outstanding ones have arrows.

/// Largest number of arrows that can be told apart.
const MOST_ARROWS = 700;
const MOST_STANDING = 260;

/// Returns the visible messages, or undefined if there are too many to draw.
function inSight(from, to) {
  const found = [];
  if (begunBefore(to) - begunBefore(from) > 60000 && !filter.isOn) return undefined;
  visit(from, to, (place) => {
    if (found.length <= MOST_ARROWS && isInRows(place)) found.push(place);
  });
  return found.length <= MOST_ARROWS ? found : undefined;
}

const isInRows = (place) => rows.of[messages.sender[place]] >= 0 || rows.of[messages.receiver[place]] >= 0;
const hasBothRows = (place) => rows.of[messages.sender[place]] >= 0 && rows.of[messages.receiver[place]] >= 0;

/// Returns the slowest messages of each part of the view, from coarser levels first, until there are enough.
function standingOut(from, to) {
  const found = [];
  for (const level of messages.standing.slice(0, -1)) {
    const coarser = found.length;
    for (let at = countBefore(level.length, (place) => messages.first[level[place]] < from); at < level.length && messages.first[level[at]] <= to; at += 1) {
      if (passes[level[at]] !== 0 && hasBothRows(level[at])) found.push(level[at]);
      if (found.length > MOST_STANDING) return found.slice(0, coarser > 0 ? coarser : MOST_STANDING);
    }
  }
  return found;
}

/// Draws arrows; `anchors`, if bars are drawn, has the height of each arrow's ends in their rows.
function drawArrows({ pen }, places, xOf, { faint = false, anchors } = {}) {
  const { of } = schemes[state.colour];
  pen.globalAlpha = faint ? 0.62 : state.chosen !== undefined ? 0.45 : places.length > 200 ? 0.75 : 0.95;
  pen.lineWidth = places.length > 300 ? 1 : 1.4;
  const hasHeads = places.length <= 400;
  for (const [group, members] of groups(places.filter(hasBothRows), of)) {
    pen.strokeStyle = pen.fillStyle = ink[state.colour][group];
    pen.beginPath();
    for (const place of members) {
      const { x1, y1, x2, y2 } = endsOf(place, xOf, anchors);
      pen.moveTo(x1, y1);
      pen.lineTo(x2, y2);
    }
    pen.stroke();
    if (hasHeads) members.forEach((place) => drawHead(pen, endsOf(place, xOf, anchors), 6));
  }
  pen.globalAlpha = 1;
}

/// Returns the ends of an arrow. Distant ends are clamped, because browsers draw that faster.
function endsOf(place, xOf, anchors) {
  const anchor = anchors?.get(place);
  const [y1, y2] = [anchor?.sent ?? middleOf(messages.sender[place]), anchor?.came ?? middleOf(messages.receiver[place])];
  return { x1: near(xOf(messages.from[place])), y1, x2: near(xOf(messages.to[place])), y2 };
}
const near = (x) => Math.min(Math.max(x, -20000), 20000);

function drawHead(pen, { x1, y1, x2, y2 }, size) {
  const angle = Math.atan2(y2 - y1, x2 - x1);
  if (Math.hypot(x2 - x1, y2 - y1) < size) return;
  pen.beginPath();
  pen.moveTo(x2, y2);
  pen.lineTo(x2 - size * Math.cos(angle - 0.4), y2 - size * Math.sin(angle - 0.4));
  pen.lineTo(x2 - size * Math.cos(angle + 0.4), y2 - size * Math.sin(angle + 0.4));
  pen.fill();
}

function drawChosen({ pen }, place, xOf, anchors) {
  if (!hasBothRows(place)) return;
  const ends = endsOf(place, xOf, anchors);
  const line = (width, colour) => {
    pen.lineWidth = width;
    pen.strokeStyle = pen.fillStyle = colour;
    pen.beginPath();
    pen.moveTo(ends.x1, ends.y1);
    pen.lineTo(ends.x2, ends.y2);
    pen.stroke();
  };
  line(6, ink.paper);
  line(2.4, ink.chosen);
  drawHead(pen, ends, 10);
  for (const [x, y] of [[ends.x1, ends.y1], [ends.x2, ends.y2]]) {
    pen.beginPath();
    pen.arc(x, y, 3.5, 0, 2 * Math.PI);
    pen.fill();
  }
}

/// Returns the arrow at a point: the nearest within a few pixels.
function arrowAt(x, y, places, xOf, anchors) {
  let [nearest, found] = [7, undefined];
  for (const place of places) {
    if (!hasBothRows(place)) continue;
    const far = farFrom(x, y, endsOf(place, xOf, anchors));
    if (far < nearest) [nearest, found] = [far, place];
  }
  return found;
}

function farFrom(x, y, { x1, y1, x2, y2 }) {
  const [dx, dy] = [x2 - x1, y2 - y1];
  const share = Math.min(Math.max(((x - x1) * dx + (y - y1) * dy) / (dx * dx + dy * dy || 1), 0), 1);
  return Math.hypot(x - x1 - share * dx, y - y1 - share * dy);
}
