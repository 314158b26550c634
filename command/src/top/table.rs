// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sample as a table: a row for each port of each process, or for each peer. Grade: setup. Tests: below.

use super::look::{Found, Peer, Port, Process};
use crate::answer::table;
use std::fmt;

/// Head of a column, and the text of its cell in a row.
type Column<T> = (&'static str, fn(&Process, &T) -> String);

const SENT: &[&str] = &["inline_sent", "copy_sent", "zero_copy_sent"];
const SENT_BYTES: &[&str] = &["inline_bytes", "copy_bytes", "zero_copy_bytes"];

static COLUMNS: &[Column<Port>] = &[
    ("RANK", |process, _| process.rank.to_string()),
    ("PID", |process, _| process.pid.to_string()),
    ("PROGRAM", |process, _| process.program.clone()),
    ("PORT", |_, port| port.name.clone()),
    ("PEERS", |_, port| port.count(&["connections"]).to_string()),
    ("SENT/s", |_, port| short(port.rate(SENT))),
    ("B/s", |_, port| short(port.rate(SENT_BYTES))),
    ("RECV/s", |_, port| short(port.rate(&["received"]))),
    ("B/s", |_, port| short(port.rate(&["received_bytes"]))),
    ("READ B/s", |_, port| short(port.rate(&["get_bytes"]))),
    ("WRITE B/s", |_, port| short(port.rate(&["put_bytes"]))),
    ("WAITING", |_, port| short(port.count(&["waiting"]) as f64)),
    ("STALLS/s", |_, port| short(port.rate(&["queued"]))),
    ("HELD BACK", |_, port| short(port.count(&["held_back"]) as f64)),
    ("USED UP", |_, port| short(port.count(&["receives_used_up"]) as f64)),
    ("UNEXP. B", |_, port| short(port.count(&["unexpected_memory"]) as f64)),
    ("REG/s", |_, port| short(port.rate(&["registrations"]))),
    ("FAILED", |_, port| port.count(&["failed"]).to_string()),
    ("LOST EV.", |process, _| short(process.events.get("events_dropped").copied().unwrap_or(0) as f64)),
    ("AGE", |_, port| port.age.map_or_else(|| "-".to_owned(), |age| format!("{age:.1}s"))),
];

static PEER_COLUMNS: &[Column<Peer>] = &[
    ("RANK", |process, _| process.rank.to_string()),
    ("PID", |process, _| process.pid.to_string()),
    ("PROGRAM", |process, _| process.program.clone()),
    ("PORT", |_, peer| peer.port.clone()),
    ("PEER", |_, peer| peer.rank.clone()),
    ("STATE", |_, peer| peer.state.to_owned()),
    ("QUEUE PAIR", |_, peer| format!("{:#x}", peer.queue_pair)),
    ("REQUESTS/s", |_, peer| short(peer.requests_rate)),
    ("REQUESTS", |_, peer| short(peer.requests as f64)),
    ("IN FLIGHT", |_, peer| peer.in_flight.to_string()),
    ("WAITING", |_, peer| short(f64::from(peer.waiting))),
    ("AGE", |_, peer| format!("{:.1}s", peer.age)),
];

fn short(number: f64) -> String {
    let (mut number, mut units) = (number, ["", "k", "M", "G", "T", "P"].iter());
    let mut unit = units.next().unwrap_or(&"");
    while number >= 999.5
        && let Some(next) = units.next()
    {
        (number, unit) = (number / 1000.0, next);
    }
    if unit.is_empty() || number >= 99.95 { format!("{number:.0}{unit}") } else { format!("{number:.1}{unit}") }
}

impl Found {
    pub(super) fn lines(&self) -> Vec<String> {
        let processes = self.processes.iter();
        if self.by_peer {
            let peers = processes.flat_map(|process| process.peers.iter().map(move |peer| (process, peer)));
            return Self::rows(PEER_COLUMNS, peers);
        }
        let ports = processes.flat_map(|process| process.ports.iter().map(move |port| (process, port)));
        Self::rows(COLUMNS, ports)
    }

    fn rows<'a, T: 'a>(columns: &[Column<T>], of: impl Iterator<Item = (&'a Process, &'a T)>) -> Vec<String> {
        let heads: Vec<&str> = columns.iter().map(|(head, _)| *head).collect();
        // Names are left-aligned.
        let numbers: Vec<usize> = (0..columns.len()).filter(|column| ![2, 3].contains(column)).collect();
        let cells = of.map(|(process, of)| columns.iter().map(|(_, cell)| cell(process, of)).collect());
        table(&heads, &numbers, cells).lines().map(|line| line.trim_end().to_owned()).collect()
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.processes.is_empty() {
            return writeln!(f, "No matching process on this host uses ibex.");
        }
        if let Some(process) = self.processes.iter().find(|process| process.other_version) {
            writeln!(
                f,
                "Process {} uses another version of ibex, whose counts this command does not know.",
                process.pid
            )?;
        }
        self.lines().iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::look::tests::process;
    use super::*;

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 0.4, 7.0, 999.4, 999.6, 12_345.0, 123_456.0, 2.5e9, 1e20].map(short);
        assert_eq!(texts, ["0", "0", "7", "999", "1.0k", "12.3k", "123k", "2.5G", "100000P"]);
    }

    #[test]
    fn each_port_has_a_row_with_its_sends_and_waits() {
        let before = process(0, &[]);
        let after = process(1_000_000_000, &[("inline_sent", 1500), ("copy_sent", 500), ("waiting", 12)]);
        let lines = after.since(&before).lines();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains(" PROGRAM ") && lines[1].contains("mlx5_0:1"), "{lines:?}");
        let after = process(2_000_000_000, &[("inline_sent", 3000), ("waiting", 12)])
            .since(&process(1_000_000_000, &[("inline_sent", 1000)]));
        let row: Vec<_> = after.lines()[1].split_whitespace().map(str::to_owned).collect();
        assert_eq!((row[0].as_str(), row[5].as_str(), row[11].as_str()), ("3", "2.0k", "12"), "{row:?}");
        assert!(Found { processes: Vec::new(), by_peer: false }.to_string().contains("No matching process"));
    }

    #[test]
    fn each_peer_has_a_row_on_request() {
        let mut found = process(2_000_000_000, &[]).since(&process(1_000_000_000, &[]));
        found.by_peer = true;
        let lines = found.lines();
        assert_eq!(lines.len(), 3);
        for (row, peer) in lines[1..].iter().zip(["1", "11.0"]) {
            let row: Vec<_> = row.split_whitespace().collect();
            assert_eq!((row[4], row[5], row[6], row[7], row[8]), (peer, "ready", "0x101", "40", "80"), "{row:?}");
        }
    }
}
