// The table of the slowest messages in view, and their waits. Choosing a row shows its message.

const slowTable = element("slowest");

function drawSlowest(found) {
  const m = messages;
  const head = `<thead><tr><th class="number">Took</th><th>Waited for</th><th class="number">Waited</th><th class="number">Size</th>
    <th>Ranks</th><th class="number">Tag</th><th>Protocol</th><th class="number">At</th></tr></thead>`;
  const lines = found.slowest.map((place) => `<tr data-place="${place}" aria-selected="${place === state.chosen}">
    <td class="number"><a href="#m=${place}" data-place="${place}">${duration(m.took[place])}</a></td>
    <td><i class="swatch round" style="background:var(--wait-${m.wait[place]})"></i> ${WAITS[m.wait[place]]}</td>
    <td class="number">${m.wait[place] > 0 ? duration(m.waited[place]) : "–"}</td>
    <td class="number">${bytes(m.bytes[place])}</td>
    <td>${nameOf(rankOf(m.sender[place]))} → ${nameOf(rankOf(m.receiver[place]))}</td>
    <td class="number">${tagOf(place)}</td>
    <td><i class="swatch" style="background:var(--protocol-${m.protocol[place]})"></i> ${PROTOCOLS[m.protocol[place]]}</td>
    <td class="number">${moment(m.first[place], 1000)}</td></tr>`);
  const none = '<tr><td colspan="8" class="quiet">No message with both ends in this stretch.</td></tr>';
  slowTable.innerHTML = `${head}<tbody>${lines.join("") || none}</tbody>`;
}

/// Marks the row of the chosen message without rebuilding the table.
function markSlowest() {
  for (const row of slowTable.querySelectorAll("tr[data-place]")) {
    row.setAttribute("aria-selected", String(Number(row.dataset.place) === state.chosen));
  }
}

function followSlowest() {
  slowTable.addEventListener("click", (event) => {
    const row = event.target.closest("tr[data-place]");
    if (!row) return;
    event.preventDefault();
    goTo(Number(row.dataset.place));
  });
}
