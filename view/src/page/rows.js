// Rows: one for each rank, or for each lane of an opened rank; their positions, and the names at their left.

const GUTTER = 132;
const AXIS = 22;
/// Smallest height of a row, and of a line of text.
const LOWEST = 5;
const LETTERS = 12;

const lanesOf = about.ranks.map(() => []);
about.lanes.forEach(({ rank }, lane) => lanesOf[rank].push(lane));

/// `all`: `{ rank, lanes }` of each row; `of`: the row of each lane, -1 if it has none; `room`: the part of a row's
/// height for messages; `calls`: the part below it for MPI calls.
const rows = { all: [], of: new Int32Array(about.lanes.length), height: 20, room: 20, calls: 0, area: 100 };

/// Lays out the rows in a drawing of a height.
function layRows(height) {
  const wanted = state.ranks && new Set(state.ranks);
  rows.all = lanesOf.flatMap((lanes, rank) => {
    if (wanted && !wanted.has(rank)) return [];
    return isOpened(rank) ? lanes.map((lane) => ({ rank, lanes: [lane] })) : [{ rank, lanes }];
  });
  rows.of.fill(-1);
  rows.all.forEach(({ lanes }, row) => lanes.forEach((lane) => { rows.of[lane] = row; }));
  rows.area = Math.max(height - AXIS, 20);
  const fitting = rows.area / Math.max(rows.all.length, 1);
  rows.height = Math.max(Math.min(fitting, 260) * state.stretch, LOWEST);
  rows.calls = about.calls + about.searches > 0 ? Math.min(Math.round(rows.height / 4), 14) : 0;
  rows.room = rows.height - rows.calls;
  const most = Math.max(0, rows.height * rows.all.length - rows.area);
  state.above = Math.min(Math.max(state.above, 0), most);
}

/// Whether a rank with several lanes has a row for each.
const isOpened = (rank) => state.opened?.includes(rank) ?? false;
const hasThreads = (rank) => lanesOf[rank].length > 1;

function openOrClose(rank) {
  const others = (state.opened ?? []).filter((each) => each !== rank);
  const opened = isOpened(rank) ? others : [...others, rank].sort((one, other) => one - other);
  change({ opened: opened.length > 0 ? opened : undefined });
}

const topOfRow = (row) => AXIS + row * rows.height - state.above;

/// Returns the upper end of a lane's row; NaN if it has none.
const topOf = (lane) => (rows.of[lane] < 0 ? NaN : topOfRow(rows.of[lane]));
const middleOf = (lane) => topOf(lane) + rows.room / 2;

function rowAt(y) {
  return y < AXIS ? undefined : rows.all[Math.floor((y - AXIS + state.above) / rows.height)];
}

function nameOf(rank) {
  const { world, rank: number } = about.ranks[rank] ?? { world: 0, rank };
  return world > 0 ? `${world}:${number}` : `${number}`;
}

const hostOf = (rank) => about.ranks[rank]?.host || "no trace";

function drawStripes({ pen, width, height }) {
  rows.all.forEach((_, row) => {
    const top = topOfRow(row);
    if (top > height || top + rows.height < AXIS) return;
    if (row % 2 === 1) {
      pen.fillStyle = ink.row;
      pen.fillRect(GUTTER, top, width - GUTTER, rows.height);
    }
  });
}

/// Draws names of hosts, ranks and threads; last, because they cover the drawing to their right.
function drawNames({ pen, height }) {
  pen.fillStyle = ink.panel;
  pen.fillRect(0, AXIS, GUTTER, height - AXIS);
  pen.save();
  pen.beginPath();
  // The name of a low row reaches a little into the axis.
  pen.rect(0, AXIS - 5, GUTTER, height - AXIS + 5);
  pen.clip();
  let [lastName, lastHost, lastHostY] = [-Infinity, "", -Infinity];
  rows.all.forEach(({ rank, lanes: [lane] }, row) => {
    const top = topOfRow(row);
    const y = top + rows.height / 2;
    const host = hostOf(rank);
    if (host !== lastHost) lastHostY = drawHost(pen, host, { top, height, wide: isOpened(rank) ? 28 : GUTTER - 48 }, lastHostY);
    lastHost = host;
    if (y - lastName < LETTERS || y > height + LETTERS || y < AXIS - 1) return;
    lastName = y;
    pen.textAlign = "right";
    pen.fillStyle = ink.text;
    const name = hasThreads(rank) ? `${isOpened(rank) ? "▾" : "▸"} ${nameOf(rank)}` : nameOf(rank);
    pen.fillText(isOpened(rank) ? clipped(pen, about.lanes[lane].thread, 56) : name, GUTTER - 8, y);
    if (isOpened(rank) && lane === lanesOf[rank][0]) pen.fillText(name, GUTTER - 68, y);
  });
  pen.restore();
  pen.strokeStyle = ink.line;
  pen.beginPath();
  pen.moveTo(GUTTER - 0.5, AXIS);
  pen.lineTo(GUTTER - 0.5, height);
  pen.stroke();
}

/// Draws the host's name beside its first row, and a line above it; returns the position of the last name.
function drawHost(pen, host, { top, height, wide }, before) {
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
  pen.fillText(clipped(pen, host, wide), 14, y);
  return y;
}

/// Returns a text cut to a width.
function clipped(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let length = text.length;
  while (length > 1 && pen.measureText(`${text.slice(0, length)}…`).width > width) length -= 1;
  return `${text.slice(0, length)}…`;
}
