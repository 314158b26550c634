// Rows: the lanes in the time line, their positions, and the names at their left.

const GUTTER = 132;
const AXIS = 22;
/// A row is not lower than this, and lines of text not closer.
const LOWEST = 5;
const LETTERS = 12;

const rows = { lanes: [], of: new Int32Array(about.lanes.length), height: 20, area: 100 };

/// Lays them out in a drawing of a height.
function layRows(height) {
  const wanted = state.ranks && new Set(state.ranks);
  rows.lanes = about.lanes.map((_, lane) => lane).filter((lane) => !wanted || wanted.has(rankOf(lane)));
  rows.of.fill(-1);
  rows.lanes.forEach((lane, row) => { rows.of[lane] = row; });
  rows.area = Math.max(height - AXIS, 20);
  const fitting = rows.area / Math.max(rows.lanes.length, 1);
  rows.height = Math.max(Math.min(fitting, 260) * state.stretch, LOWEST);
  const most = Math.max(0, rows.height * rows.lanes.length - rows.area);
  state.above = Math.min(Math.max(state.above, 0), most);
}

/// The upper end of a lane's row; NaN where it has none.
function topOf(lane) {
  const row = rows.of[lane];
  return row < 0 ? NaN : AXIS + row * rows.height - state.above;
}

const middleOf = (lane) => topOf(lane) + rows.height / 2;

/// The lane at a height, or nothing.
function laneAt(y) {
  return y < AXIS ? undefined : rows.lanes[Math.floor((y - AXIS + state.above) / rows.height)];
}

function nameOf(rank) {
  const { world, rank: number } = about.ranks[rank] ?? { world: 0, rank };
  return world > 0 ? `${world}:${number}` : `${number}`;
}

const hostOf = (rank) => about.ranks[rank]?.host || "no trace";

/// Stripes behind the rows, before anything is drawn on them.
function drawStripes({ pen, width, height }) {
  rows.lanes.forEach((lane, row) => {
    const top = topOf(lane);
    if (top > height || top + rows.height < AXIS) return;
    if (row % 2 === 1) {
      pen.fillStyle = ink.row;
      pen.fillRect(GUTTER, top, width - GUTTER, rows.height);
    }
  });
}

/// Names of hosts, ranks and threads; drawn last, over what comes from the right.
function drawNames({ pen, height }) {
  pen.fillStyle = ink.panel;
  pen.fillRect(0, AXIS, GUTTER, height - AXIS);
  pen.save();
  pen.beginPath();
  // The name of a low row reaches a little into the axis.
  pen.rect(0, AXIS - 5, GUTTER, height - AXIS + 5);
  pen.clip();
  let [lastName, lastHost, lastHostY] = [-Infinity, "", -Infinity];
  rows.lanes.forEach((lane) => {
    const [top, y] = [topOf(lane), middleOf(lane)];
    const rank = rankOf(lane);
    const host = hostOf(rank);
    if (host !== lastHost) lastHostY = drawHost(pen, host, top, height, lastHostY);
    lastHost = host;
    if (y - lastName < LETTERS || y > height + LETTERS || y < AXIS - 1) return;
    lastName = y;
    pen.textAlign = "right";
    pen.fillStyle = ink.text;
    const { thread } = about.lanes[lane];
    pen.fillText(thread ? clipped(pen, thread, 56) : nameOf(rank), GUTTER - 8, y);
    if (thread && isFirstLane(lane)) pen.fillText(nameOf(rank), GUTTER - 68, y);
  });
  pen.restore();
  pen.strokeStyle = ink.line;
  pen.beginPath();
  pen.moveTo(GUTTER - 0.5, AXIS);
  pen.lineTo(GUTTER - 0.5, height);
  pen.stroke();
}

const isFirstLane = (lane) => lane === 0 || rankOf(lane - 1) !== rankOf(lane);

/// The host's name beside its first row, and a line above it; returns where the last name of a host stands.
function drawHost(pen, host, top, height, before) {
  if (top > height) return before;
  pen.strokeStyle = ink.line;
  if (rows.height >= 4) {
    pen.beginPath();
    pen.moveTo(0, Math.round(top) + 0.5);
    pen.lineTo(GUTTER, Math.round(top) + 0.5);
    pen.stroke();
  }
  const y = top + Math.min(rows.height / 2, 40);
  if (y - before < LETTERS) return before;
  pen.textAlign = "left";
  pen.fillStyle = host === "no trace" ? ink.faint : ink.soft;
  pen.fillText(clipped(pen, host, GUTTER - 48), 14, y);
  return y;
}

/// A text cut to a width.
function clipped(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let length = text.length;
  while (length > 1 && pen.measureText(`${text.slice(0, length)}…`).width > width) length -= 1;
  return `${text.slice(0, length)}…`;
}
