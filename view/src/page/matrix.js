// The matrix of pairs: a row per sender, a column per receiver, darker for more. With very many ranks each cell stands
// for several. Choosing a cell shows only that pair; choosing it again shows all.

const matrix = element("matrix");
const MOST_SIDE = 256;
const cursor = { row: 0, column: 0, isShown: false };
let pairs;

/// Makes empty cells for all pairs: `of` maps a rank to its row and column.
function matrixSize() {
  const ranks = about.ranks.length;
  const group = Math.max(1, Math.ceil(ranks / MOST_SIDE));
  const side = Math.max(1, Math.ceil(ranks / group));
  const of = Int32Array.from({ length: ranks }, (_, rank) => Math.floor(rank / group));
  return { side, group, of, count: new Float64Array(side * side), bytes: new Float64Array(side * side) };
}

const MARGIN = 20;

function drawMatrix(found) {
  pairs = found?.pairs ?? pairs;
  if (!pairs) return;
  const { pen, width, height } = prepared(matrix);
  pen.fillStyle = ink.panel;
  pen.fillRect(0, 0, width, height);
  const { side } = pairs;
  const values = pairs[element("weight").value];
  const most = Math.log1p(values.reduce((most, value) => Math.max(most, value), 0)) || 1;
  const wide = cellSize(width, height);
  pen.fillStyle = ink.paper;
  pen.fillRect(MARGIN, MARGIN, wide * side, wide * side);
  pen.fillStyle = ink.bar;
  for (let cell = 0; cell < values.length; cell += 1) {
    if (values[cell] === 0) continue;
    // Every pair with a message is visible.
    pen.globalAlpha = 0.1 + 0.9 * (Math.log1p(values[cell]) / most) ** 4;
    const gap = wide > 8 ? 1 : 0;
    pen.fillRect(MARGIN + (cell % side) * wide, MARGIN + Math.floor(cell / side) * wide, wide - gap, wide - gap);
  }
  pen.globalAlpha = 1;
  drawMatrixFrame(pen, side, wide);
}

const cellSize = (width, height) => (Math.min(width, height) - MARGIN - 2) / pairs.side;

function drawMatrixFrame(pen, side, wide) {
  pen.strokeStyle = ink.line;
  pen.lineWidth = 1;
  pen.strokeRect(MARGIN - 0.5, MARGIN - 0.5, wide * side + 1, wide * side + 1);
  pen.fillStyle = ink.soft;
  const every = Math.max(1, Math.ceil(26 / wide / 2) * 2 >> (wide >= 16 ? 1 : 0));
  for (let at = 0; at < side; at += every) {
    pen.textAlign = "center";
    pen.fillText(nameOf(at * pairs.group), MARGIN + (at + 0.5) * wide, 8);
    pen.textAlign = "right";
    pen.fillText(nameOf(at * pairs.group), MARGIN - 4, MARGIN + (at + 0.5) * wide);
  }
  const [from, to] = [valuesOf(state.query, "from"), valuesOf(state.query, "to")].map((values) => placeOfRank(values[0]));
  const frame = (row, column, colour) => {
    pen.lineWidth = 2;
    pen.strokeStyle = colour;
    pen.strokeRect(MARGIN + column * wide - 1, MARGIN + row * wide - 1, wide + 2, wide + 2);
  };
  if (from >= 0 && to >= 0) frame(pairs.of[from], pairs.of[to], ink.chosen);
  if (cursor.isShown) frame(cursor.row, cursor.column, ink.mark);
}

function sayPair() {
  const { row, column } = cursor;
  const cell = row * pairs.side + column;
  const name = (place) => (pairs.group > 1 ? `${nameOf(place * pairs.group)}…` : nameOf(place));
  element("pair").textContent = cursor.isShown
    ? `${name(row)} → ${name(column)}: ${count(pairs.count[cell])}, ${bytes(pairs.bytes[cell])}`
    : "";
}

function pickPair() {
  if (pairs.group > 1) return;
  const [from, to] = [nameOf(cursor.row), nameOf(cursor.column)];
  const isPicked = valuesOf(state.query, "from")[0] === from && valuesOf(state.query, "to")[0] === to;
  const without = withValues(withValues(state.query, "from", []), "to", []);
  if (isPicked) {
    change({ query: without, ranks: undefined });
    return;
  }
  const ranks = [...new Set([cursor.row, cursor.column])].sort((one, other) => one - other);
  change({ query: `${without} from:${from} to:${to}`.trim(), ranks: about.ranks.length > 8 ? ranks : undefined, stretch: 1, above: 0 });
}

function followMatrix() {
  const put = (row, column) => {
    const inside = (value) => Math.min(Math.max(value, 0), pairs.side - 1);
    Object.assign(cursor, { row: inside(row), column: inside(column), isShown: true });
    sayPair();
    drawMatrix();
  };
  matrix.addEventListener("pointermove", ({ offsetX: x, offsetY: y }) => {
    if (!pairs) return;
    const wide = cellSize(matrix.clientWidth, matrix.clientHeight);
    put(Math.floor((y - MARGIN) / wide), Math.floor((x - MARGIN) / wide));
  });
  matrix.addEventListener("pointerleave", () => {
    cursor.isShown = false;
    if (!pairs) return;
    sayPair();
    drawMatrix();
  });
  matrix.addEventListener("click", () => pairs && pickPair());
  matrix.addEventListener("keydown", (event) => {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (!pairs) return;
    if (event.key === "Enter" || event.key === " ") pickPair();
    else if (steps[event.key]) put(cursor.row + steps[event.key][0], cursor.column + steps[event.key][1]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  element("weight").addEventListener("change", () => drawMatrix());
}
