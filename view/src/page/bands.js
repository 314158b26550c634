// Bands: if there are too many messages to draw, the number that begin and end in each row and bin of time, by class.
// For the whole run the writer has prepared the numbers; for other views this file counts them.

/// The planes of the prepared cells, or a promise of them.
let bandCells;
/// Smallest width of a bin.
const NARROWEST = 2;

function cellsOf(later) {
  bandCells ??= columnsOf("bands").then((columns) => { bandCells = columns.map((column) => all(column, Uint32Array)); });
  if (!(bandCells instanceof Promise)) return bandCells;
  bandCells.then(later, fail);
  return undefined;
}

/// Returns the bands of a time in `width` pixels: `{ begin, step, bins, classes, planes }`, with a plane of cells for
/// each class, by lane.
function bandsOf(from, to, width, later) {
  const most = Math.max(Math.floor(width / NARROWEST), 1);
  const isFine = about.bands.bins >= (most * SPAN) / (to - from) / 2;
  const isPrepared = !filter.isOn && (!is.complete() || isFine);
  return (isPrepared && preparedBands(from, to, most, later)) || countedBands(from, to, most);
}

function preparedBands(from, to, most, later) {
  const planes = cellsOf(later);
  if (!planes?.length) return undefined;
  const all = planes[0].length / Math.max(about.lanes.length, 1);
  const first = Math.max(0, Math.floor((from / SPAN) * all));
  const end = Math.min(all, Math.ceil((to / SPAN) * all));
  const group = Math.max(1, Math.ceil((end - first) / most));
  const bins = Math.ceil((end - first) / group);
  const { protocols, waits } = about.bands;
  const [classes, skipped] = state.colour === "protocol" ? [protocols, 0] : [waits, protocols.length];
  const sums = classes.map((_, place) => {
    const [plane, sum] = [planes[skipped + place], new Uint32Array(about.lanes.length * bins)];
    for (let lane = 0; lane < about.lanes.length; lane += 1) {
      for (let bin = first; bin < end; bin += 1) {
        sum[lane * bins + Math.floor((bin - first) / group)] += plane[lane * all + bin];
      }
    }
    return sum;
  });
  return { begin: (first * SPAN) / all, step: (group * SPAN) / all, bins, classes, planes: sums };
}

function countedBands(from, to, most) {
  const step = (to - from) / most;
  const { of, names } = schemes[state.colour];
  const planes = names.map(() => undefined);
  const { sender, receiver, from: begin, to: end } = messages;
  visit(from, to, (place) => {
    const plane = (planes[of(place)] ??= new Uint32Array(about.lanes.length * most));
    const [sent, came] = [Math.floor((begin[place] - from) / step), Math.floor((end[place] - from) / step)];
    if (sent >= 0 && sent < most) plane[sender[place] * most + sent] += 1;
    if (came >= 0 && came < most) plane[receiver[place] * most + came] += 1;
  });
  const classes = names.map((_, place) => place).filter((place) => planes[place]);
  return { begin: from, step, bins: most, classes, planes: classes.map((place) => planes[place]) };
}

/// Returns the bands with planes by row: the sums of the lanes in each.
function inRows(bands) {
  const planes = bands.planes.map((plane) => {
    const sum = new Uint32Array(rows.all.length * bands.bins);
    rows.all.forEach(({ lanes }, row) => {
      for (const lane of lanes) {
        for (let bin = 0; bin < bands.bins; bin += 1) sum[row * bands.bins + bin] += plane[lane * bands.bins + bin];
      }
    });
    return sum;
  });
  return { ...bands, planes };
}

const image = document.createElement("canvas");

/// Rows lower than this have no room for columns: they mix the colours, stronger for more messages.
const LOW = 15;

function mixed({ planes }, cell, total, colours, strength) {
  let [red, green, blue] = [0, 0, 0];
  planes.forEach((plane, place) => {
    const share = plane[cell] / total;
    red += share * (colours[place] & 0xff);
    green += share * ((colours[place] >> 8) & 0xff);
    blue += share * ((colours[place] >> 16) & 0xff);
  });
  const alpha = Math.round(50 + 205 * Math.min(strength, 1));
  return ((alpha << 24) | (Math.round(blue) << 16) | (Math.round(green) << 8) | Math.round(red)) >>> 0;
}

function fillLow(dots, colour, top, floor, wide, high, from, to) {
  for (let y = Math.max(top, 0); y <= Math.min(floor, high - 1); y += 1) dots.fill(colour, y * wide + from, y * wide + to);
}

/// Draws bands by row: columns in each row, as high as the square root of the count, divided among the classes.
function drawBands({ pen, width, height, scale }, bands, xOf) {
  const [wide, high] = [Math.round((width - GUTTER) * scale), Math.round((height - AXIS) * scale)];
  if (wide < 1 || high < 1) return;
  if (image.width !== wide || image.height !== high) Object.assign(image, { width: wide, height: high });
  const canvas = image.getContext("2d");
  const data = canvas.createImageData(wide, high);
  const dots = new Uint32Array(data.data.buffer);
  const colours = bands.classes.map((place) => pixels[state.colour][place]);
  const most = Math.sqrt(highest(bands));
  const rowHeight = Math.max(1, Math.round(rows.room * scale - (rows.room > 8 ? 2 * scale : 1)));
  const isLow = rows.room < LOW;
  const edge = (bin) => Math.round((xOf(bands.begin + bin * bands.step) - GUTTER) * scale);
  const edges = Array.from({ length: bands.bins + 1 }, (_, bin) => Math.min(Math.max(edge(bin), 0), wide));
  for (let row = 0; row < rows.all.length; row += 1) {
    const floor = Math.round((topOfRow(row) - AXIS + rows.room) * scale) - 1;
    if (floor < 0 || floor - rowHeight > high) continue;
    for (let bin = 0; bin < bands.bins; bin += 1) {
      const cell = row * bands.bins + bin;
      let total = 0;
      for (const plane of bands.planes) total += plane[cell];
      if (total === 0) continue;
      if (isLow) {
        fillLow(dots, mixed(bands, cell, total, colours, Math.sqrt(total) / most), floor - rowHeight, floor, wide, high, edges[bin], edges[bin + 1]);
        continue;
      }
      const tall = Math.max(Math.round((rowHeight * Math.sqrt(total)) / most), 1);
      let [sum, y] = [0, floor];
      bands.planes.forEach((plane, place) => {
        sum += plane[cell];
        const top = floor - Math.round((tall * sum) / total);
        for (; y > top; y -= 1) {
          if (y >= 0 && y < high) dots.fill(colours[place], y * wide + edges[bin], y * wide + edges[bin + 1]);
        }
      });
    }
  }
  canvas.putImageData(data, 0, 0);
  pen.globalAlpha = 0.88;
  pen.drawImage(image, GUTTER, AXIS, width - GUTTER, height - AXIS);
  pen.globalAlpha = 1;
}

function highest(bands) {
  let most = 1;
  for (let cell = 0; cell < rows.all.length * bands.bins; cell += 1) {
    let total = 0;
    for (const plane of bands.planes) total += plane[cell];
    if (total > most) most = total;
  }
  return most;
}
