// The controls above the time line: search, colours and their legend, theme, keys; and the line that describes the
// view.

function search(text) {
  change({ query: text });
}

function drawQuery() {
  const field = element("query");
  if (document.activeElement !== field || field.value.trim() !== state.query) field.value = state.query;
  const answer = element("query-answer");
  field.setAttribute("aria-invalid", String(filter.error !== ""));
  answer.classList.toggle("wrong", filter.error !== "");
  answer.textContent = filter.error || (filter.isOn ? `${count(filter.count)} of ${count(TOTAL)}` : "");
}

/// Draws the occurring classes as buttons that select them.
function drawLegend() {
  for (const radio of document.querySelectorAll('input[name="colour"]')) radio.checked = radio.value === state.colour;
  const { names, means } = schemes[state.colour];
  const occurring = state.colour === "protocol" ? about.bands.protocols : about.bands.waits;
  const picked = valuesOf(state.query, state.colour);
  const place = element("legend");
  place.dataset.some = String(picked.length > 0);
  place.innerHTML = occurring.map((each) => `<button type="button" data-name="${dashed(names[each])}" title="${means[each]}"
    aria-pressed="${picked.includes(dashed(names[each]))}"><i style="background:var(--${state.colour}-${each})"></i>${names[each]}</button>`).join("");
}

function pick(name) {
  const picked = valuesOf(state.query, state.colour);
  const others = picked.filter((each) => each !== name);
  search(withValues(state.query, state.colour, others.length < picked.length ? others : [...picked, name]));
}

function drawTheme() {
  const isDark = state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  document.documentElement.style.colorScheme = isDark ? "dark" : "light";
  element("theme").textContent = isDark ? "Light" : "Dark";
  readColours();
}

/// Describes in words what the time line shows.
function drawWindow() {
  const length = state.to - state.from;
  const step = length / 1000;
  const which = isWhole() ? "the whole run" : `${duration(length)} of ${duration(about.span)}`;
  const words = {
    phases: "each with its phases", arrows: "each an arrow", bands: drawn.places.length > 0 ? "bands count them, arrows are the slowest" : "bands count them", nothing: "",
  }[drawn.mode];
  const reading = is.complete() ? "" : ` · reading: ${Math.floor((100 * messages.loaded) / TOTAL)} %`;
  const found = gathered && is.complete() ? ` · <b>${counted(gathered.count, "message")}</b>, ${bytes(gathered.bytes)}${gathered.count > 0 ? ` · ${words}` : ""}` : "";
  const text = `<b>${moment(state.from, step)} – ${moment(state.to, step)}</b> · ${which}${found}${reading}`;
  if (element("window").innerHTML !== text) element("window").innerHTML = text;
  element("all-rows").hidden = state.ranks === undefined;
}

function drawSummary() {
  const hosts = new Set(about.ranks.map((rank) => rank.host).filter(Boolean)).size;
  const errors = about.ranks.map((rank) => rank.clock_error);
  const clock = errors.length < 2 || errors.includes(null) ? "" : `clocks agree to ±${duration(Math.max(...errors))}`;
  const more = [
    about.calls > 0 && counted(about.calls, "MPI call"),
    about.operations > 0 && counted(about.operations, "one-sided operation"),
    about.connections > 0 && counted(about.connections, "connection"),
    about.incidents > 0 && counted(about.incidents, "incident"),
  ];
  const parts = [
    `${counted(about.ranks.length, "rank")} on ${counted(hosts, "host")}`, counted(TOTAL, "message"), bytes(about.bytes), duration(about.span), ...more, clock,
  ];
  element("summary").textContent = parts.filter(Boolean).join(" · ");
  element("notices").hidden = about.notices.length === 0;
  element("notices").innerHTML = about.notices.length === 1
    ? plain(about.notices[0])
    : `<ul>${about.notices.map((notice) => `<li>${plain(notice)}</li>`).join("")}</ul>`;
}

const HELP = `<h2>Keys on the time line</h2><div><table>
  <tr><td><kbd>←</kbd> <kbd>→</kbd></td><td>earlier, later</td></tr><tr><td><kbd>+</kbd> <kbd>−</kbd></td><td>zoom (also the wheel, or two fingers)</td></tr>
  <tr><td><kbd>0</kbd></td><td>the whole run</td></tr><tr><td><kbd>↑</kbd> <kbd>↓</kbd></td><td>other rows (also Shift and the wheel)</td></tr>
  <tr><td><kbd>[</kbd> <kbd>]</kbd></td><td>lower, higher rows (also Alt and the wheel)</td></tr></table><table>
  <tr><td><kbd>n</kbd> <kbd>p</kbd></td><td>next message, the one before</td></tr><tr><td><kbd>Enter</kbd></td><td>zoom to the chosen message</td></tr>
  <tr><td><kbd>Esc</kbd></td><td>choose none; all ranks</td></tr><tr><td><kbd>c</kbd> <kbd>d</kbd></td><td>colour by protocol or wait; dark or light</td></tr>
  <tr><td><kbd>/</kbd></td><td>search</td></tr></table></div>
  <h2>Search</h2><p>All terms have to hold. Commas are alternatives; ranges are <code>A..B</code>, <code>&gt;A</code>, <code>&lt;B</code>.</p><div><table>
  <tr><td><code>tag:17</code></td><td>tags below 0 are collective; libfabric's: <code>tag:0x400000011</code></td></tr><tr><td><code>size:4K..64K</code></td><td>bytes</td></tr>
  <tr><td><code>rank:3</code></td><td>sends or receives (also <code>peer:</code>)</td></tr><tr><td><code>from:3 to:5</code></td><td>a pair</td></tr>
  <tr><td><code>host:node1</code></td><td>sends or receives</td></tr></table><table>
  <tr><td><code>comm:MPI_COMM_WORLD</code></td><td>name or context</td></tr><tr><td><code>protocol:read,fragments</code></td><td>as the legend</td></tr>
  <tr><td><code>wait:late-sender</code></td><td>longest wait</td></tr><tr><td><code>took:&gt;20us</code></td><td>call to completion</td></tr>
  <tr><td><code>waited:&gt;1ms</code></td><td>longest wait</td></tr></table></div>
  <h2>Marks</h2><p>▼ receiver not ready · ■ memory registered or deregistered · ❙ a request had to queue · ◆ connection made · ✖ connection failed · ● event of adapter or port</p>
  <h2>Calls of MPI</h2><p>Bars below the messages of a row, fainter where calls are shorter than a pixel; in them the searches of queues. Lines across the bar of a message are its fragments.</p>
  <p class="quiet">The address of this page, after #, stores the current view. <button type="button" id="close-keys">Close</button></p>`;

function toggleHelp() {
  const dialog = element("keys");
  if (dialog.open) dialog.close();
  else {
    dialog.innerHTML = HELP;
    element("close-keys").addEventListener("click", () => dialog.close());
    dialog.showModal();
  }
}

const otherTheme = () => change({ theme: document.documentElement.dataset.theme === "dark" ? "light" : "dark" });

const setColour = (colour) => change({ colour });

function followControls() {
  const field = element("query");
  field.addEventListener("input", rested(300, () => search(field.value.trim())));
  field.addEventListener("keydown", (event) => { if (event.key === "Enter") search(field.value.trim()); });
  element("legend").addEventListener("click", ({ target }) => {
    const name = target.closest("button")?.dataset.name;
    if (name) pick(name);
  });
  document.querySelectorAll('input[name="colour"]').forEach((radio) => radio.addEventListener("change", () => setColour(radio.value)));
  element("theme").addEventListener("click", otherTheme);
  element("help").addEventListener("click", toggleHelp);
  element("zoom-in").addEventListener("click", () => zoom(0.5));
  element("zoom-out").addEventListener("click", () => zoom(2));
  element("whole").addEventListener("click", () => change({ from: 0, to: SPAN, ranks: undefined, stretch: 1, above: 0 }));
  element("all-rows").addEventListener("click", () => change({ ranks: undefined }));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => changes.theme.forEach((answer) => answer()));
}

/// Action of each key, except in a field.
const ACTIONS = {
  ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15), ArrowUp: () => change({ above: state.above - 60 }),
  ArrowDown: () => change({ above: state.above + 60 }), "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6),
  0: showWhole, Home: showWhole, "[": () => stretchRows(1 / 1.3), "]": () => stretchRows(1.3), n: () => step(1), p: () => step(-1),
  Enter: () => state.chosen !== undefined && goTo(state.chosen), Escape: () => change({ chosen: undefined, ranks: undefined }),
  c: () => setColour(state.colour === "protocol" ? "wait" : "protocol"), d: otherTheme, "/": () => element("query").focus(), "?": toggleHelp,
};

function followKeys() {
  document.addEventListener("keydown", (event) => {
    const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "radio";
    const isOnButton = event.target.tagName === "BUTTON" && event.key === "Enter";
    if (isTyping && event.key === "Escape") line.focus();
    const isElsewhere = isTyping || isOnButton || element("keys").open || event.ctrlKey || event.metaKey || event.altKey;
    const inTable = event.target.closest?.(".scroll") && (event.key.startsWith("Arrow") || event.key === "Enter");
    if (isElsewhere || inTable || !Object.hasOwn(ACTIONS, event.key)) return;
    event.preventDefault();
    ACTIONS[event.key]();
  });
}
