// Starts the page: shows the whole run from the data before this script, then reads the messages after it.

let gathered;
const problems = [];

function fail(error) {
  problems.push(String(error?.message ?? error));
  const place = element("error");
  place.hidden = false;
  place.textContent = `Part of this page cannot be shown. ${problems.join(" ")}`;
  describe();
}
addEventListener("error", (event) => fail(event.error ?? event.message));
addEventListener("unhandledrejection", (event) => fail(event.reason));

const timing = {};
const stamp = (name) => { timing[name] ??= Math.round(performance.now()); };

/// Describes the view for programs, such as tests with a headless browser.
function describe() {
  stamp("first");
  const { mode, places, bars, marks, calls, searches, fragments, operations, draws, cost } = drawn;
  element("self").textContent = JSON.stringify({
    ready: timing.done !== undefined && (state.chosen === undefined || details.textContent !== ""), problems, mode, total: TOTAL,
    arrows: places.length, bars: bars.length, marks: marks.length, calls, searches, fragments, operations, shown: gathered?.count, bytes: gathered?.bytes, rows: rows.all.length,
    passing: filter.count, size: [line.clientWidth, line.clientHeight, line.width, line.height, innerWidth, innerHeight], error: filter.error, from: state.from, to: state.to, chosen: state.chosen, slowest: gathered?.slowest.slice(0, 5),
    draws, cost: Math.round(cost ?? 0), timing,
  });
}

function countAgain() {
  if (!is.complete()) return;
  const begun = performance.now();
  gathered = gather();
  timing.gather = Math.round(performance.now() - begun);
  drawSizes(gathered);
  drawDelays(gathered);
  drawMatrix(gathered);
  drawSlowest(gathered);
  drawWindow();
  stamp("counted");
  describe();
}
const recount = rested(120, countAgain);

function follow() {
  changes.time.push(hideTip, redraw, recount);
  changes.rows.push(hideTip, redraw, recount);
  changes.colour.push(redraw, drawLegend, drawDetails);
  changes.query.push(refilter);
  changes.chosen.push(redraw, drawDetails, markSlowest);
  changes.theme.push(drawTheme, redraw, () => drawMatrix());
  followInput();
  followOverview();
  followHistograms();
  followMatrix();
  followSlowest();
  followDetails();
  followControls();
  followKeys();
  element("measure").addEventListener("change", recount);
  addEventListener("hashchange", () => change(fromAddress()));
  // At once, because the browser would stretch the drawing until the next frame.
  new ResizeObserver(() => {
    drawNow();
    recount();
  }).observe(line);
}

function refilter() {
  applyFilter(state.query);
  drawQuery();
  drawLegend();
  redraw();
  recount();
}

const parsed = () => new Promise((resume) => {
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", resume, { once: true });
  else resume();
});

async function start() {
  Object.assign(state, fromAddress());
  drawTheme();
  drawSummary();
  drawLegend();
  follow();
  redraw();
  await parsed();
  stamp("parsed");
  if (!element("end")) fail("This file is truncated: its end is missing.");
  await readMessages(redraw);
  stamp("read");
  refilter();
  countAgain();
  if (state.chosen !== undefined && !/(^|[#&])t=/.test(location.hash)) goTo(state.chosen);
  drawDetails();
  await readRare();
  for (const kind of Object.keys(FIELDS)) await readSpans(kind);
  stamp("done");
  redraw();
  drawDetails();
}

if (typeof DecompressionStream === "undefined") fail("This browser is too old: it lacks DecompressionStream (Chrome 80, Firefox 113 and Safari 16.4 have it).");
else start().catch(fail);
