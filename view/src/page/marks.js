// Marks: incidents and connections, each kind with its own form, at the upper edge of their rows. Overlapping marks
// merge into a larger one. One-sided operations are thin lines at the lower edge.

const rare = { incidents: [], connections: [] };

async function readRare() {
  const [time, lane, kind, peer, port, value] = (await columnsOf("incidents")).map((column) => all(column));
  for (let at = 0; at < time.length; at += 1) {
    rare.incidents.push({
      form: kind[at], time: signed(time[at]), lane: lane[at], peer: peer[at] - 1, port: port[at] - 1, value: value[at],
    });
  }
  const [first, established, failed, row, other, via, pair, remote, status] = (await columnsOf("connections")).map((column) => all(column));
  for (let at = 0; at < first.length; at += 1) {
    const hasFailed = failed[at] > 0;
    rare.connections.push({
      form: hasFailed ? "failed" : "connection", time: distance(first[at]), end: distance(hasFailed ? failed[at] : established[at]),
      lane: row[at], peer: other[at], port: via[at] - 1, pair: pair[at], remote: remote[at], status: status[at],
    });
  }
}

/// Returns the visible marks, `{ x, y, form, members }`.
function marksOf(xOf, width) {
  const marks = [];
  const last = new Map();
  const all = [rare.incidents, rare.connections];
  for (const list of all) {
    for (const each of list) {
      if (each.time > state.to || each.time < state.from || rows.of[each.lane] < 0 || each.form === 1) continue;
      const x = xOf(each.time);
      const key = `${each.lane} ${each.form}`;
      const before = last.get(key);
      if (before && x - before.x < 11) {
        before.members.push(each);
        continue;
      }
      const mark = { x, y: topOf(each.lane) + Math.min(6, rows.height / 2), form: each.form, members: [each] };
      if (x > GUTTER && x < width) marks.push(mark);
      last.set(key, mark);
    }
  }
  return marks;
}

function drawMarks({ pen }, marks) {
  for (const { x, y, form, members } of marks) {
    // Emphasises errors; memory and connections are part of every run.
    pen.fillStyle = WRONG.has(form) ? ink.mark : ink.soft;
    pen.strokeStyle = ink.paper;
    pen.lineWidth = 2;
    pen.save();
    pen.translate(x, y);
    const size = Math.min(1 + Math.log10(members.length) / 4, 1.6) * (form === 3 || form === 4 ? 0.75 : 1);
    pen.scale(size, size);
    pen.beginPath();
    drawForm(pen, form, 0, 0);
    pen.stroke();
    pen.fill();
    pen.restore();
  }
}

/// Receiver not ready, events of adapter and port, failed connections.
const WRONG = new Set([2, 5, 6, "failed"]);

/// Triangle: receiver not ready; square: registration; diamond: connection; cross: failure; bar: queue; disc: events.
function drawForm(pen, form, x, y) {
  const polygon = (...points) => {
    points.forEach(([dx, dy], at) => (at === 0 ? pen.moveTo(x + dx, y + dy) : pen.lineTo(x + dx, y + dy)));
    pen.closePath();
  };
  if (form === 2) polygon([-4.5, -3.5], [4.5, -3.5], [0, 4.5]);
  else if (form === 3 || form === 4) polygon([-3.5, -3.5], [3.5, -3.5], [3.5, 3.5], [-3.5, 3.5]);
  else if (form === 0) polygon([-1.5, -5], [1.5, -5], [1.5, 5], [-1.5, 5]);
  else if (form === "connection") polygon([0, -4.5], [4.5, 0], [0, 4.5], [-4.5, 0]);
  else if (form === "failed") polygon([-5, -3], [-3, -5], [0, -2], [3, -5], [5, -3], [2, 0], [5, 3], [3, 5], [0, 2], [-3, 5], [-5, 3], [-2, 0]);
  else pen.arc(x, y, 4, 0, 2 * Math.PI);
}

function drawOperations({ pen }) {
  rows.all.forEach(({ lanes: [lane] }, row) => eachSpan("operations", lane, 1, (x1, x2, at) => {
    pen.fillStyle = spans.operations.status[at] === 0 ? ink.soft : ink.mark;
    pen.fillRect(x1, topOfRow(row) + rows.room - 3, x2 - x1, 2);
    drawn.operations += 1;
  }));
}

const markAt = (x, y, marks) => marks.find((mark) => Math.hypot(mark.x - x, mark.y - y) < 7);

function wordsOf({ form, members }) {
  const [one] = members;
  const peer = one.peer >= 0 ? `, rank ${nameOf(one.peer)}` : "";
  const more = members.length > 1 ? `${count(members.length)} times from here on: ` : "";
  if (form === "connection") return `${more}connection to rank ${nameOf(one.peer)}, made in ${duration(one.end - one.time)} (queue pair ${one.pair} to ${one.remote})`;
  if (form === "failed") return `${more}connection to rank ${nameOf(one.peer)} failed with status ${one.status}`;
  const value = form === 3 || form === 4 ? `: ${bytes(one.value)}` : form === 0 ? `: ${counted(one.value, "request")} waiting` : form >= 5 ? ` ${one.value}` : "";
  return more + INCIDENTS[form] + value + peer;
}
