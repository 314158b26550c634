// The strip of the whole run above the time line: the number of messages over time, and a frame around the current
// view. Dragging the frame moves it; dragging beside it draws a new one.

const overview = element("overview");

function drawOverview() {
  const sheet = prepared(overview);
  const { pen, width, height } = sheet;
  const wide = width - GUTTER;
  const xOf = (time) => GUTTER + (time / SPAN) * wide;
  const planes = cellsOf(redraw);
  pen.fillStyle = ink.faint;
  pen.textAlign = "left";
  pen.fillText("whole run", 14, height / 2);
  pen.textAlign = "right";
  pen.fillText(duration(about.span), GUTTER - 8, height / 2);
  if (planes?.length > 0) drawSums(pen, planes, xOf, height);
  pen.strokeStyle = ink.line;
  pen.strokeRect(GUTTER + 0.5, 0.5, wide - 1, height - 1);
  if (isWhole()) return;
  const [x1, x2] = [xOf(Math.max(state.from, 0)), xOf(Math.min(state.to, SPAN))];
  pen.globalAlpha = 0.72;
  pen.fillStyle = ink.paper;
  pen.fillRect(GUTTER, 0, x1 - GUTTER, height);
  pen.fillRect(x2, 0, width - x2, height);
  pen.globalAlpha = 1;
  pen.strokeStyle = ink.accent;
  pen.lineWidth = 2;
  pen.strokeRect(Math.min(x1, width - 4) + 1, 1, Math.max(x2 - x1 - 2, 2), height - 2);
}

function drawSums(pen, planes, xOf, height) {
  const { bins, protocols, waits } = about.bands;
  const [classes, skipped] = state.colour === "protocol" ? [protocols, 0] : [waits, protocols.length];
  overviewSums[state.colour] ??= classes.map((_, place) => {
    const sum = new Float64Array(bins);
    planes[skipped + place].forEach((cell, at) => { sum[at % bins] += cell; });
    return sum;
  });
  const sums = overviewSums[state.colour];
  let most = 1;
  for (let bin = 0; bin < bins; bin += 1) most = Math.max(most, sums.reduce((total, sum) => total + sum[bin], 0));
  const wide = xOf(SPAN / bins) - xOf(0);
  for (let bin = 0; bin < bins; bin += 1) {
    let y = height - 1;
    sums.forEach((sum, place) => {
      const tall = (sum[bin] / most) * (height - 4);
      pen.fillStyle = ink[state.colour][classes[place]];
      pen.fillRect(xOf((bin * SPAN) / bins), y - tall, wide + 0.3, tall);
      y -= tall;
    });
  }
}
const overviewSums = {};

const overviewTime = (event) => ((event.offsetX - GUTTER) / (overview.clientWidth - GUTTER)) * SPAN;

function followOverview() {
  let begun;
  let grip;
  overview.addEventListener("pointerdown", (event) => {
    overview.setPointerCapture(event.pointerId);
    begun = overviewTime(event);
    const isInside = !isWhole() && begun >= state.from && begun <= state.to;
    grip = isInside ? begun - state.from : undefined;
  });
  overview.addEventListener("pointermove", (event) => {
    if (begun === undefined) return;
    const now = overviewTime(event);
    if (grip !== undefined) show(now - grip, now - grip + state.to - state.from);
    else if (Math.abs(now - begun) > SPAN / overview.clientWidth * 4) show(Math.min(begun, now), Math.max(begun, now));
  });
  overview.addEventListener("pointerup", (event) => {
    const now = overviewTime(event);
    const half = (state.to - state.from) / 2;
    if (grip === undefined && Math.abs(now - begun) <= SPAN / overview.clientWidth * 4 && !isWhole()) show(now - half, now + half);
    begun = undefined;
  });
}
