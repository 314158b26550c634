// The time line: combines rows, calls, bands, arrows, bars and marks into one drawing.

const line = element("line");
/// The current content of the drawing, for the pointer and for the description.
const drawn = { mode: "nothing", places: [], bars: [], anchors: undefined, marks: [], calls: 0, searches: 0, fragments: 0, operations: 0, xOf: () => 0, timeAt: () => 0, width: 0, draws: 0 };

let isAsked = false;
function redraw() {
  if (isAsked) return;
  isAsked = true;
  requestAnimationFrame(() => {
    isAsked = false;
    drawNow();
  });
}

function drawNow() {
  const begun = performance.now();
  drawTimeline();
  drawOverview();
  drawn.draws += 1;
  drawn.cost = performance.now() - begun;
  drawWindow();
  describe();
}

function drawTimeline() {
  const sheet = prepared(line);
  const { width, height } = sheet;
  const wide = Math.max(width - GUTTER, 1);
  const { from, to } = state;
  layRows(height);
  const xOf = (time) => GUTTER + ((time - from) * wide) / (to - from);
  Object.assign(drawn, { xOf, width, timeAt: (x) => from + ((x - GUTTER) * (to - from)) / wide, bars: [], anchors: undefined, calls: 0, searches: 0, fragments: 0, operations: 0 });
  drawStripes(sheet);
  drawGrid(sheet, xOf);
  drawCalls(sheet);
  const places = isReadUpTo(to) ? inSight(from, to) : undefined;
  if (places) drawEach(sheet, places, xOf);
  else drawMany(sheet, xOf);
  if (state.chosen !== undefined && state.chosen < messages.loaded) drawChosen(sheet, state.chosen, xOf, drawn.anchors);
  drawOperations(sheet);
  drawn.marks = marksOf(xOf, width);
  drawMarks(sheet, drawn.marks);
  drawAxis(sheet, xOf);
  drawNames(sheet);
}

const isReadUpTo = (time) => is.complete() || (messages.loaded > 0 && messages.first[messages.loaded - 1] > time);

function drawEach(sheet, places, xOf) {
  const bars = places.length <= MOST_BARS ? barsOf(places, redraw) : undefined;
  const hasBars = bars && hasRoom(bars);
  if (hasBars) {
    drawn.anchors = layBars(bars);
    drawBars(sheet, bars, xOf);
  }
  drawArrows(sheet, places, xOf, { anchors: drawn.anchors });
  Object.assign(drawn, { mode: hasBars ? "phases" : "arrows", places, bars: hasBars ? bars : [] });
}

/// Whether the bars are wide enough: half of them have three pixels or more.
function hasRoom(bars) {
  const seen = bars.filter((bar) => drawn.xOf(bar.to) - drawn.xOf(bar.from) >= 3).length;
  return seen * 2 >= bars.length;
}

function drawMany(sheet, xOf) {
  drawBands(sheet, inRows(bandsOf(state.from, state.to, sheet.width - GUTTER, redraw)), xOf);
  const places = standingOut(state.from, state.to);
  // Upright arrows would only hide the bands.
  const shown = places.filter((place) => Math.abs(xOf(messages.to[place]) - xOf(messages.from[place])) > 4);
  drawArrows(sheet, shown, xOf, { faint: true });
  Object.assign(drawn, { mode: "bands", places: shown });
}

/// Returns the distance between lines of the grid: 1, 2 or 5 times a power of ten nanoseconds, and about `pixelsApart`.
function gridStep(pixelsApart, width) {
  const least = ((state.to - state.from) * pixelsApart) / width;
  const power = 10 ** Math.floor(Math.log10(least));
  return power * ([1, 2, 5, 10].find((times) => power * times >= least) ?? 10);
}

function ticks(width) {
  const step = gridStep(110, Math.max(width - GUTTER, 1));
  const times = [];
  for (let time = Math.ceil(state.from / step) * step; time <= state.to; time += step) times.push(time);
  return { step, times };
}

function drawGrid({ pen, width, height }, xOf) {
  pen.strokeStyle = ink.grid;
  pen.beginPath();
  for (const time of ticks(width).times) {
    const x = Math.round(xOf(time)) + 0.5;
    pen.moveTo(x, AXIS);
    pen.lineTo(x, height);
  }
  pen.stroke();
}

function drawAxis({ pen, width }, xOf) {
  pen.fillStyle = ink.panel;
  pen.fillRect(0, 0, width, AXIS);
  pen.strokeStyle = ink.line;
  pen.beginPath();
  pen.moveTo(0, AXIS - 0.5);
  pen.lineTo(width, AXIS - 0.5);
  const { step, times } = ticks(width);
  for (const time of times) {
    const x = Math.round(xOf(time)) + 0.5;
    if (x < GUTTER) continue;
    pen.moveTo(x, AXIS - 5);
    pen.lineTo(x, AXIS);
  }
  pen.stroke();
  pen.textAlign = "center";
  pen.fillStyle = ink.soft;
  for (const time of times) {
    const x = xOf(time);
    const half = 36;
    const exact = Math.abs(time) < step / 2 ? 0 : time;
    // All ticks have the same unit.
    if (x > GUTTER + half && x < width - half) pen.fillText(moment(exact, step, Math.abs(state.to)), x, AXIS / 2 - 1);
  }
  pen.textAlign = "left";
  pen.fillStyle = ink.faint;
  pen.fillText("host", 14, AXIS / 2 - 1);
  pen.textAlign = "right";
  pen.fillText("rank", GUTTER - 8, AXIS / 2 - 1);
}
