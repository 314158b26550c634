// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sample of the running processes, and the rates between two samples: divided by the time between a process's copies
//! of its counts. Grade: setup. Tests: below.

use ibex::counters::{COUNTERS, Class};
use ibex::flight::leftovers::{self};
use ibex::flight::{EVENTS, Flight, PeerFlight, PortFlight};
use ibex::peer::PeerName;
use ibex_ffi::clock::monotonic;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

pub(super) struct Look {
    time: u64,
    processes: Vec<Flight>,
}

/// The output of a sample.
#[derive(Serialize)]
pub(super) struct Found {
    pub(super) processes: Vec<Process>,
    /// Whether the table has a row per peer instead of per port.
    #[serde(skip)]
    pub(super) by_peer: bool,
}

#[derive(Serialize)]
pub(super) struct Process {
    pub(super) job: u32,
    pub(super) rank: u32,
    pub(super) pid: u32,
    pub(super) host: String,
    pub(super) program: String,
    /// Whether it uses another version of ibex, with other counts.
    pub(super) other_version: bool,
    pub(super) events: BTreeMap<&'static str, u64>,
    pub(super) ports: Vec<Port>,
    pub(super) peers: Vec<Peer>,
}

#[derive(Serialize)]
pub(super) struct Peer {
    /// The rank, or `JOB.RANK` in another job.
    #[serde(rename = "peer")]
    pub(super) rank: String,
    pub(super) port: String,
    pub(super) state: &'static str,
    pub(super) queue_pair: u32,
    /// Number of sends, reads, writes and atomics, in all and per second.
    pub(super) requests: u64,
    pub(super) requests_rate: f64,
    pub(super) in_flight: u32,
    pub(super) waiting: u32,
    /// Seconds since the process copied it.
    pub(super) age: f64,
}

#[derive(Serialize)]
pub(super) struct Port {
    pub(super) name: String,
    /// Seconds since the process copied it.
    pub(super) age: Option<f64>,
    pub(super) counts: BTreeMap<&'static str, u64>,
    pub(super) rates: BTreeMap<&'static str, f64>,
}

impl Look {
    pub(super) fn at(folder: &Path, pid_or_job: Option<u32>) -> Look {
        let files = leftovers::find(folder).into_iter();
        let asked_for = files.filter(|file| pid_or_job.is_none_or(|number| [file.pid, file.job].contains(&number)));
        // Leaves out processes that end meanwhile.
        let processes = asked_for.filter_map(|file| Flight::read(&file.path).ok()).filter(|flight| flight.is_alive);
        Look { processes: processes.collect(), time: monotonic() }
    }

    /// Returns the output, with rates since an earlier sample.
    pub(super) fn since(&self, before: &Look) -> Found {
        let process = |flight: &Flight| {
            let earlier = before.processes.iter().find(|other| (other.pid, other.job) == (flight.pid, flight.job));
            let earlier_peer = |peer: &PeerFlight| {
                let is_it = |other: &&PeerFlight| (other.peer, other.port) == (peer.peer, peer.port);
                earlier?.peers.iter().find(is_it)
            };
            let earlier_port = |port: &PortFlight| earlier?.ports.iter().find(|other| other.index == port.index);
            Process {
                job: flight.job,
                rank: flight.rank,
                pid: flight.pid,
                host: flight.host.clone(),
                program: flight.program.clone(),
                other_version: flight.ports.iter().any(|port| port.counts.is_empty()),
                events: EVENTS.into_iter().zip(flight.events).collect(),
                ports: flight.ports.iter().map(|each| port(self.time, each, earlier_port(each))).collect(),
                peers: flight.peers.iter().map(|each| peer(self.time, flight, each, earlier_peer(each))).collect(),
            }
        };
        Found { processes: self.processes.iter().map(process).collect(), by_peer: false }
    }
}

fn peer(now: u64, flight: &Flight, peer: &PeerFlight, before: Option<&PeerFlight>) -> Peer {
    let passed = before.map_or(0, |before| peer.time.saturating_sub(before.time)) as f64 / 1e9;
    let more = before.map_or(0, |before| peer.posted.saturating_sub(before.posted)) as f64;
    Peer {
        rank: peer_name(flight, peer),
        port: flight.port_name(peer.port).to_owned(),
        state: peer.state.name(),
        queue_pair: peer.queue_pairs.0,
        requests: peer.posted,
        requests_rate: if passed > 0.0 { more / passed } else { 0.0 },
        in_flight: peer.in_flight,
        waiting: peer.waiting,
        age: now.saturating_sub(peer.time) as f64 / 1e9,
    }
}

/// Returns a peer's name: its rank, or `JOB.RANK` in another job.
pub(crate) fn peer_name(flight: &Flight, peer: &PeerFlight) -> String {
    let PeerName { job, rank } = peer.peer;
    if is_of_job(flight, peer) { rank.to_string() } else { format!("{job}.{rank}") }
}

/// Whether a peer is in the process's own job, as far as is known.
pub(crate) fn is_of_job(flight: &Flight, PeerFlight { peer, .. }: &PeerFlight) -> bool {
    flight.names_instances || peer.job == flight.job
}

fn port(now: u64, port: &PortFlight, before: Option<&PortFlight>) -> Port {
    let shown = COUNTERS.iter().zip(&port.counts).filter(|(row, _)| row.name != "receiver_not_ready");
    let passed = before.and_then(|before| Some(port.time?.saturating_sub(before.time?) as f64 / 1e9)).unwrap_or(0.0);
    let rate = |name, value: u64| {
        let more = value.saturating_sub(before.map_or(value, |before| before.count(name)));
        if passed > 0.0 { more as f64 / passed } else { 0.0 }
    };
    let grows = shown.clone().filter(|(row, _)| !matches!(row.class, Class::Level | Class::Size));
    Port {
        name: port.name.clone(),
        age: port.time.map(|time| now.saturating_sub(time) as f64 / 1e9),
        counts: shown.map(|(row, value)| (row.name, *value)).collect(),
        rates: grows.map(|(row, value)| (row.name, rate(row.name, *value))).collect(),
    }
}

impl Port {
    pub(super) fn count(&self, names: &[&str]) -> u64 {
        names.iter().filter_map(|name| self.counts.get(name)).sum()
    }

    pub(super) fn rate(&self, names: &[&str]) -> f64 {
        names.iter().filter_map(|name| self.rates.get(name)).sum()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use ibex::flight::PeerState;
    use ibex::peer::PeerName;

    pub(in crate::top) fn process(time: u64, set: &[(&str, u64)]) -> Look {
        Look { time: time + 500_000_000, processes: vec![flight(time, set)] }
    }

    pub(crate) fn flight(time: u64, set: &[(&str, u64)]) -> Flight {
        let value = |name| set.iter().find(|(other, _)| *other == name).map_or(0, |(_, value)| *value);
        let counts = COUNTERS.iter().map(|row| value(row.name)).collect();
        let gid = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        let port = PortFlight { index: 0, name: "mlx5_0:1".into(), gid, time: Some(time), counts };
        let peer = |job, rank| PeerFlight {
            peer: PeerName { job, rank },
            port: 0,
            state: PeerState::Ready,
            queue_pairs: (0x101, 0x202),
            posted: 40 * (time / 1_000_000_000),
            in_flight: 1,
            waiting: 0,
            asked: 1,
            timeout: 14,
            retries: 7,
            time,
        };
        Flight {
            pid: 100,
            job: 9,
            rank: 3,
            host: "n1".into(),
            program: "a.out".into(),
            is_alive: true,
            reason: String::new(),
            to_unix: 0,
            ports: vec![port],
            peers: vec![peer(9, 1), peer(11, 0)],
            names_instances: false,
            has_more_peers: false,
            events: [0, 0, 5, 0],
            made: 0,
            entries: Vec::new(),
            torn: 0,
        }
    }

    #[test]
    fn rates_are_by_the_times_at_which_counts_were_copied() {
        let before = process(1_000_000_000, &[("received", 10), ("waiting", 3)]);
        let after = process(3_000_000_000, &[("received", 50), ("waiting", 1)]);
        let found = after.since(&before);
        let port = &found.processes[0].ports[0];
        assert_eq!((port.counts["received"], port.rates["received"], port.age), (50, 20.0, Some(0.5)));
        assert!(!port.rates.contains_key("waiting") && port.counts["waiting"] == 1);
        assert_eq!(found.processes[0].events["events_dropped"], 5);
        let [peer, other] = &found.processes[0].peers[..] else { panic!("there are two") };
        assert_eq!((peer.rank.as_str(), peer.requests, peer.requests_rate, peer.age), ("1", 120, 40.0, 0.5));
        assert_eq!(other.rank, "11.0");
        let is_still = |found: &Found| found.processes[0].ports[0].rates["received"].abs() < 1e-9;
        assert!(is_still(&after.since(&after)));
        let none = Look { time: 0, processes: Vec::new() };
        assert!(is_still(&after.since(&none)));
    }
}
