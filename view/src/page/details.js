// The chosen message: its fields, protocol and reason, a picture of its phases, and all its times.

const details = element("details");
const MOMENT_MEANS = {
  activated: "the call begins", announced: "the rendezvous request leaves", begun: "the first bytes leave",
  ended: "the adapter has the last bytes", completed: "the request is complete", notified: "the caller is notified",
  arrived: "arrives", unexpected: "unexpected: queued", requested: "the receive's call begins",
  posted: "the receive is posted", matched: "matched", put: "the first bytes are in place", filled: "the last bytes are in place",
  received: "the request is complete", told: "the caller is notified",
};

function drawDetails() {
  const place = state.chosen;
  details.hidden = place === undefined || !is.complete();
  if (details.hidden) return;
  // The width of the panel changes that of the time line.
  redraw();
  const life = lifeOf(place, drawDetails);
  if (!life) return;
  const m = messages;
  const [sender, receiver] = [rankOf(m.sender[place]), rankOf(m.receiver[place])];
  details.innerHTML = `<h2><span>Rank ${nameOf(sender)} → rank ${nameOf(receiver)}, ${bytes(m.bytes[place])}</span>
      <button class="close" type="button" aria-label="Close (Escape)" title="Close (Esc)">×</button></h2>
    <p>${sentence(place)}</p>
    <div class="jump"><button type="button" data-go="zoom" title="Enter">Zoom</button><button type="button" data-go="back" title="The message before (p)">‹ Before</button>
      <button type="button" data-go="next" title="The next message (n)">Next ›</button><button type="button" data-go="pair">Its pair</button></div>
    ${lifePicture(place, life)}
    <dl>${facts(place, life).map(([name, value]) => `<dt>${name}</dt><dd>${value}</dd>`).join("")}</dl>
    ${times(life, SEND_NAMES, `Rank ${nameOf(sender)} sends`)}${fragmentTable(place, 0, life.begun)}
    ${times(life, RECEIVE_NAMES, `Rank ${nameOf(receiver)} receives`)}${fragmentTable(place, 1, life.put)}${searchTable(place)}`;
}

function sentence(place) {
  const m = messages;
  const took = Number.isNaN(m.took[place]) ? "Only one side is known." : `It took ${duration(m.took[place])}.`;
  const wait = m.wait[place] === 0 ? "" : ` Longest wait, ${duration(m.waited[place])}: ${WAIT_MEANS[m.wait[place]]} (${WAITS[m.wait[place]]}).`;
  return took + wait;
}

function facts(place, life) {
  const m = messages;
  const { context, name, members, remote } = about.communicators[m.communicator[place]] ?? { context: "?", name: "", members: 0 };
  const group = remote > 0 ? `${members} and ${remote}` : members;
  const port = about.ports[life.port];
  const rails = life.rails > 1 ? `, with ${life.rails - 1} more` : "";
  return [
    ["Message", `number ${place}${life.number ? `, ${count(life.number)} of its receiver` : ""}`],
    ["Bytes", count(m.bytes[place])],
    ["Tag", `${tagOf(place)}${tagOf(place).startsWith("-") ? " (a collective operation)" : ""}`],
    ["Communicator", plain(`${name || `context ${context}`} (${group} ranks)`)],
    ["Protocol", `${PROTOCOLS[m.protocol[place]]}: ${PROTOCOL_MEANS[m.protocol[place]]}`],
    ["Why", REASONS[m.reason[place]]],
    ["Port", port ? plain(`${port.device}:${port.number}${port.gid ? ` (${port.gid})` : ""}${rails}`) : "none, or not recorded"],
    ["Queue pair", life.queuePair ? `${life.queuePair} (0x${life.queuePair.toString(16)})` : "none, or not recorded"],
    ["One-way delay", delayWords(place, life)],
    ["Hosts", plain(`${hostOf(rankOf(m.sender[place]))} → ${hostOf(rankOf(m.receiver[place]))}`)],
    ["MPI calls", `${callsOf(m.sender[place], life.activated, life.notified)} → ${callsOf(m.receiver[place], life.requested, life.told)}`],
    ["Requests", `${life.request ?? "?"} and ${life.receiveRequest ?? "?"}`],
  ];
}

/// Describes the delay with its error, which is that of both clocks.
function delayWords(place, life) {
  if (leftOf(life) === undefined || life.arrived === undefined) return "unknown";
  const ends = [messages.sender[place], messages.receiver[place]].map((lane) => about.ranks[rankOf(lane)]);
  const delay = duration(life.arrived - leftOf(life));
  if (ends[0] === ends[1]) return "none: within one process";
  if (ends.some((rank) => rank.clock_error === null)) return `${delay} (clocks not compared)`;
  return `${delay} ± ${duration(ends[0].clock_error + ends[1].clock_error)}`;
}

/// Draws the phases of both sides, one below the other.
function lifePicture(place, life) {
  const [from, to] = [messages.first[place], Math.max(messages.last[place], messages.first[place] + 1)];
  const [width, left] = [318, 2];
  const x = (time) => left + ((time - from) / (to - from)) * (width - 2 * left);
  const paint = (kind) => (kind === "transfer" ? `var(--${state.colour}-${schemes[state.colour].of(place)})` : `var(--phase-${kind})`);
  const bars = (phases, y) => phases.map(([kind, begin, end, words]) => `<rect x="${x(begin)}" y="${y}" height="18" width="${Math.max(x(end) - x(begin), 1)}"
    fill="${kind === "wait" ? "url(#hatched)" : paint(kind)}"><title>${words}: ${duration(end - begin)}</title></rect>`).join("");
  const arrow = leftOf(life) !== undefined && life.arrived !== undefined
    ? `<line x1="${x(leftOf(life))}" y1="30" x2="${x(life.arrived)}" y2="54" stroke="var(--text)" stroke-width="1.5" marker-end="url(#tip-of-arrow)"/>` : "";
  const kinds = new Set([...sendPhases(life), ...receivePhases(life)].filter(([, begin, end]) => end > begin).map(([kind]) => kind));
  const legend = [...kinds].map((kind) => `<span><i class="swatch ${kind === "wait" ? "hatched" : ""}" style="${
    kind === "wait" ? "" : `background:${paint(kind)}`}"></i>${PHASES[kind]}</span>`);
  return `<svg viewBox="0 0 ${width} 74" role="img" aria-label="Phases of both sides">
    <defs><pattern id="hatched" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">
      <rect width="6" height="6" fill="var(--phase-wait)" fill-opacity=".45"/><rect width="6" height="2" fill="var(--phase-wait)"/></pattern>
      <marker id="tip-of-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="var(--text)"/></marker></defs>
    <rect x="0" y="12" width="${width}" height="18" fill="var(--grid)"/><rect x="0" y="54" width="${width}" height="18" fill="var(--grid)"/>
    <text x="0" y="9">sender</text><text x="${width}" y="50" text-anchor="end">receiver</text><text x="${width}" y="9" text-anchor="end">${duration(to - from)}</text>
    ${bars(sendPhases(life), 12)}${bars(receivePhases(life), 54)}${arrow}</svg>
    <div class="phases">${legend.join("")}</div>`;
}

/// Makes a table of a side's times in order: since the message's first, and since the previous one.
function times(life, names, title) {
  // The sender of a read sees only the answer.
  const isAnswered = messages.protocol[life.place] === READ && life.announced !== undefined;
  const means = { ...MOMENT_MEANS, ...(isAnswered && { ended: "the receiver's answer comes: it has read all" }) };
  const known = names.filter((name) => life[name] !== undefined && !(isAnswered && name === "begun")).sort((one, other) => life[one] - life[other]);
  if (known.length === 0) return `<h3>${title}</h3><p>No trace of this side.</p>`;
  const start = messages.first[life.place];
  const lines = known.map((name, at) => {
    const since = at === 0 ? "" : `+${duration(life[name] - life[known[at - 1]])}`;
    const clock = life.byAdapter.includes(name) ? "adapter" : "host";
    return `<tr><td>${duration(life[name] - start)}</td><td>${means[name]} (${clock})</td><td>${since}</td></tr>`;
  });
  return `<h3>${title}</h3><table class="times">${lines.join("")}</table>`;
}

function followDetails() {
  details.addEventListener("click", ({ target }) => {
    if (target.closest(".close")) change({ chosen: undefined });
    const go = target.dataset?.go;
    const [sender, receiver] = [rankOf(messages.sender[state.chosen]), rankOf(messages.receiver[state.chosen])];
    if (go === "zoom") goTo(state.chosen);
    else if (go === "back") step(-1);
    else if (go === "next") step(1);
    else if (go === "pair") search(`from:${nameOf(sender)} to:${nameOf(receiver)}`);
  });
}
