// Histograms of sizes and latencies of the messages in view. The same pass gathers the data of the matrix and of the
// table of the slowest.

/// Bins per decade of latency, from 10 ns on, and the number of bars shown.
const PER_DECADE = 24;
const DECADES = 10;
const MOST_BINS = 44;
const SIZE_BARS = 42;
const MOST_SLOW = 60;

const latencies = {
  delay: (place) => messages.to[place] - messages.from[place], took: (place) => messages.took[place], waited: (place) => messages.waited[place],
};

function gather() {
  const found = {
    count: 0, bytes: 0, backwards: 0, sizes: new Float64Array(SIZE_BARS), times: new Float64Array(PER_DECADE * DECADES),
    pairs: matrixSize(), slowest: [],
  };
  const { sender, receiver, bytes: size, took } = messages;
  const measure = latencies[element("measure").value];
  const cells = found.pairs.side;
  let least = -1;
  visit(state.from, state.to, (place) => {
    if (!isInRows(place)) return;
    found.count += 1;
    found.bytes += size[place];
    found.sizes[size[place] < 1 ? 0 : Math.min(1 + Math.floor(Math.log2(size[place])), SIZE_BARS - 1)] += 1;
    const time = measure(place);
    if (time > 0) found.times[timeBar(time)] += 1;
    else if (time < 0) found.backwards += 1;
    const cell = found.pairs.of[rankOf(sender[place])] * cells + found.pairs.of[rankOf(receiver[place])];
    found.pairs.count[cell] += 1;
    found.pairs.bytes[cell] += size[place];
    if (took[place] > least) least = keepSlow(found.slowest, place, took);
  });
  found.slowest.sort((one, other) => took[other] - took[one]);
  found.slowest.length = Math.min(found.slowest.length, MOST_SLOW);
  return found;
}

/// Keeps the slowest; returns the duration that another must exceed.
function keepSlow(slowest, place, took) {
  slowest.push(place);
  if (slowest.length < 4 * MOST_SLOW) return -1;
  slowest.sort((one, other) => took[other] - took[one]);
  slowest.length = MOST_SLOW;
  return took[slowest[MOST_SLOW - 1]];
}

const timeBar = (time) => Math.min(Math.max(Math.floor(Math.log10(time / 10) * PER_DECADE), 0), PER_DECADE * DECADES - 1);
const timeOfBar = (bar) => 10 * 10 ** (bar / PER_DECADE);

/// Draws a histogram: `bars` of `[height, words, search]`; `marks` of `[bar, text]` below them.
function drawHistogram(place, bars, marks, label) {
  const [width, height, foot, head] = [place.clientWidth || 240, place.clientHeight || 200, 16, 14];
  const most = Math.max(...bars.map(([value]) => value), 1);
  const wide = width / bars.length;
  const tall = (value) => (value === 0 ? 0 : Math.max((value / most) * (height - foot - head), 1.5));
  const parts = bars.map(([value, words, terms], at) => {
    const h = tall(value);
    const box = `x="${at * wide}" width="${wide}"`;
    return `<rect x="${at * wide + 0.5}" y="${height - foot - h}" width="${Math.max(wide - 1, 0.5)}" height="${h}" fill="var(--bar)"/>
      <rect class="hit" ${box} y="0" height="${height - foot}" data-terms="${plain(terms)}"><title>${plain(words)}</title></rect>`;
  });
  let free = 0;
  const texts = marks.map(([bar, text]) => {
    const half = text.length * 3;
    const x = Math.min(Math.max(bar * wide, half), width - half);
    // Omits a text that would touch the previous one.
    if (x - half < free) return "";
    free = x + half + 6;
    return `<text x="${x}" y="${height - 4}" text-anchor="middle">${plain(text)}</text>`;
  });
  place.innerHTML = `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${plain(label)}">
    <line x1="0" x2="${width}" y1="${height - foot + 0.5}" y2="${height - foot + 0.5}" stroke="var(--line)"/>
    <text x="0" y="9">${count(most === 1 && bars.every(([value]) => value === 0) ? 0 : most)}</text>${parts.join("")}${texts.join("")}</svg>`;
}

/// Returns the part of an array with values, with a bar of room at both ends.
function occupied(values) {
  const first = values.findIndex((value) => value > 0);
  const last = values.findLastIndex((value) => value > 0);
  return first < 0 ? [0, Math.min(values.length, 12)] : [Math.max(first - 1, 0), Math.min(last + 2, values.length)];
}

function drawSizes(found) {
  const [first, end] = occupied(found.sizes);
  const range = (bar) => (bar === 0 ? [0, 0] : [2 ** (bar - 1), 2 ** bar - 1]);
  const bars = [];
  const marks = [];
  const every = Math.ceil((end - first) / 6);
  for (let bar = first; bar < end; bar += 1) {
    const [low, high] = range(bar);
    const name = bar === 0 ? "empty" : low === high ? bytes(low) : `${bytes(low)} and more, less than ${bytes(high + 1)}`;
    bars.push([found.sizes[bar], `${name}: ${counted(found.sizes[bar], "message")}`, `size:${low}..${high}`]);
    if ((bar - first) % every === Math.floor(every / 2)) marks.push([bar - first + 0.5, bar === 0 ? "0" : bytes(low)]);
  }
  drawHistogram(element("sizes"), bars, marks, `Sizes of ${counted(found.count, "message")}, ${bytes(found.bytes)} in all`);
}

function drawDelays(found) {
  const [first, end] = occupied(found.times);
  const measure = element("measure").value;
  // Merged bins divide a decade evenly.
  const group = [1, 2, 4, 8, 24].find((bins) => (end - first) / bins <= MOST_BINS) ?? PER_DECADE;
  const begin = Math.floor(first / group) * group;
  const bars = [];
  const marks = [];
  for (let bar = begin; bar < end; bar += group) {
    const [low, high] = [timeOfBar(bar), timeOfBar(bar + group)];
    const value = found.times.slice(bar, bar + group).reduce((sum, each) => sum + each, 0);
    const terms = measure === "delay" ? "" : `${measure}:${Math.ceil(low)}ns..${Math.ceil(high) - 1}ns`;
    bars.push([value, `${duration(low)} to ${duration(high)}: ${counted(value, "message")}`, terms]);
  }
  for (const value of roundTimes(timeOfBar(begin), timeOfBar(begin + bars.length * group), bars.length * group > 3 * PER_DECADE)) {
    marks.push([(Math.log10(value / timeOfBar(begin)) * PER_DECADE) / group, duration(value)]);
  }
  const back = found.backwards > 0 ? `; ${counted(found.backwards, "arrow")} run backwards by the clocks' error` : "";
  drawHistogram(element("delays"), bars, marks, `Latencies of ${counted(found.count, "message")}${back}`);
}

/// Returns round times between two, for an axis: powers of ten, and 2 and 5 times these if it is short.
function roundTimes(from, to, isLong) {
  const found = [];
  for (let power = 1; power <= to; power *= 10) {
    for (const times of isLong ? [1] : [1, 2, 5]) if (power * times >= from && power * times <= to) found.push(power * times);
  }
  return found;
}

function followHistograms() {
  for (const id of ["sizes", "delays"]) {
    element(id).addEventListener("click", ({ target }) => {
      const terms = target.dataset?.terms;
      if (!terms) return;
      const [key, value] = terms.split(":");
      search(withValues(state.query, key, valuesOf(state.query, key).includes(value) ? [] : [value]));
    });
  }
}
