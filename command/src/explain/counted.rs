// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receipt of a process without a trace: the counts of its ports, and the state of its connections, from its flight
//! recorder's file and the kernel's counters of its adapters. Grade: setup. Tests: below.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv6Addr;
use std::path::Path;

use comfy_table::CellAlignment::{Left, Right};
use ibex::counters::COUNTERS;
use ibex::flight::{Flight, Kind, PeerFlight, PortFlight};
use serde::Serialize;

use super::text::{Column, bytes, duration, known, table, table_of};
use crate::facts::counters::{self, Counters};
use crate::top::{is_of_job, peer_name};

#[derive(Serialize)]
pub(super) struct Counted {
    job: u32,
    rank: u32,
    pid: u32,
    host: String,
    program: String,
    /// The last failure; empty: none.
    reason: String,
    peers: Vec<Peer>,
    ports: Vec<Port>,
    /// Facts that counts cannot tell, and how to find them out.
    unknown: Vec<String>,
}

#[derive(Serialize)]
struct Peer {
    #[serde(rename = "peer")]
    rank: String,
    port: String,
    gid: String,
    state: &'static str,
    queue_pair: u32,
    remote_queue_pair: u32,
    rails: usize,
    /// Number of sends, reads, writes and atomics.
    requests: u64,
    in_flight: u32,
    waiting: u32,
    /// Number of waits that have begun, among the last entries of the flight recorder.
    waits_begun: usize,
    held_back: usize,
    /// Number of hellos sent to it.
    asked: u32,
    acknowledgement_timeout_nanoseconds: Option<u64>,
    retries_at_most: u8,
    age_seconds: f64,
}

#[derive(Serialize)]
struct Port {
    name: String,
    gid: String,
    age_seconds: Option<f64>,
    counts: BTreeMap<&'static str, u64>,
    /// Retransmissions and receivers not ready, of all processes since the adapter started.
    adapter: Counters,
}

/// The kernel's names of counters of retransmissions and receivers that were not ready.
const AGAIN: &str = "duplicate_request implied_nak_seq_err local_ack_timeout_err out_of_buffer out_of_sequence \
                     packet_seq_err rcvd_rnr_err rcvd_seq_err retransmits retry_exceeded_err retry_rnr_exceeded_err \
                     rnr_nak_retry_err rx_icrc_encapsulated send_rnr_err";

impl Counted {
    /// Makes the receipt of a process at `now` (the host's monotonic clock).
    pub(super) fn of(flight: &Flight, now: u64) -> Counted {
        let sysfs = Path::new("/sys/class/infiniband");
        let peers: Vec<Peer> = flight.peers.iter().map(|peer| of_peer(flight, peer, now)).collect();
        let mut unknown = vec![
            "Sizes and protocols of single messages, the reasons, and waits: a recorded job has them, \
             also while it runs (ibex trace -o DIR -- mpirun ..., then ibex explain --live PID)."
                .to_owned(),
            "Bytes and messages of each peer: ports count these for all peers together.".to_owned(),
        ];
        if flight.ports.iter().any(|port| port.counts.is_empty()) {
            unknown.push(
                "Counts of ports: the process uses another version of ibex. Use the command of that version."
                    .to_owned(),
            );
        }
        if flight.has_more_peers {
            let count = peers.iter().map(|peer| &peer.rank).collect::<BTreeSet<_>>().len();
            unknown.push(format!("More peers than {count}: the flight recorder has no room for them."));
        }
        Counted {
            job: flight.job,
            rank: flight.rank,
            pid: flight.pid,
            host: flight.host.clone(),
            program: flight.program.clone(),
            reason: flight.reason.clone(),
            peers,
            ports: flight.ports.iter().map(|port| of_port(port, now, sysfs)).collect(),
            unknown,
        }
    }
}

fn of_peer(flight: &Flight, peer: &PeerFlight, now: u64) -> Peer {
    let told = |kind: Kind| {
        let of_it = |port: u8, rank: u32| (port, rank) == (peer.port, peer.peer.rank);
        // The ring names ranks only, so it cannot tell peers of another job apart.
        let is_own = is_of_job(flight, peer);
        flight.entries.iter().filter(|of| is_own && of.known() == Some(kind) && of_it(of.port, of.peer)).count()
    };
    let port = flight.ports.iter().find(|port| port.index == peer.port);
    Peer {
        rank: peer_name(flight, peer),
        port: port.map_or_else(String::new, |port| port.name.clone()),
        gid: port.map_or_else(String::new, gid),
        state: peer.state.name(),
        queue_pair: peer.queue_pairs.0,
        remote_queue_pair: peer.queue_pairs.1,
        rails: flight.peers.iter().filter(|other| other.peer == peer.peer).count(),
        requests: peer.posted,
        in_flight: peer.in_flight,
        waiting: peer.waiting,
        waits_begun: told(Kind::StallBegun),
        held_back: told(Kind::HeldBack),
        asked: peer.asked,
        acknowledgement_timeout_nanoseconds: (1..32).contains(&peer.timeout).then(|| 4096 << peer.timeout),
        retries_at_most: peer.retries,
        age_seconds: now.saturating_sub(peer.time) as f64 / 1e9,
    }
}

fn gid(port: &PortFlight) -> String {
    let is_none = port.gid.iter().all(|byte| *byte == 0);
    if is_none { String::new() } else { Ipv6Addr::from(port.gid).to_string() }
}

fn of_port(port: &PortFlight, now: u64, sysfs: &Path) -> Port {
    let folder = port.name.rsplit_once(':').map(|(device, number)| sysfs.join(device).join("ports").join(number));
    let mut adapter = folder.map(|folder| counters::read(&folder)).unwrap_or_default();
    adapter.retain(|name, value| *value > 0 && AGAIN.split(' ').any(|known| known == name));
    let shown = COUNTERS.iter().zip(&port.counts).filter(|(row, _)| row.name != "receiver_not_ready");
    Port {
        name: port.name.clone(),
        gid: gid(port),
        age_seconds: port.time.map(|time| now.saturating_sub(time) as f64 / 1e9),
        counts: shown.map(|(row, value)| (row.name, *value)).collect(),
        adapter,
    }
}

/// Name of each path of messages and operations, its count, its bytes.
const WAYS: [(&str, &str, Option<&str>); 7] = [
    ("sent inline", "inline_sent", Some("inline_bytes")),
    ("sent copied", "copy_sent", Some("copy_bytes")),
    ("sent from user memory", "zero_copy_sent", Some("zero_copy_bytes")),
    ("received", "received", Some("received_bytes")),
    ("RDMA reads", "get", Some("get_bytes")),
    ("RDMA writes", "put", Some("put_bytes")),
    ("atomics", "atomic", None),
];

const TROUBLES: [(&str, &str); 9] = [
    ("requests that waited", "queued"),
    ("requests waiting now", "waiting"),
    ("times all receives were in use", "receives_used_up"),
    ("times a peer was throttled", "held_back"),
    ("registrations of user memory", "registrations"),
    ("connections made", "connected"),
    ("connections that failed", "failed"),
    ("rendezvous because of flow control", "announced_held_back"),
    ("messages dropped as malformed", "malformed"),
];

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counted { job, rank, pid, host, program, .. } = self;
        writeln!(f, "Rank {rank} of job {job} on host {host}, process {pid}, {program}: by its counts")?;
        self.reason.lines().try_for_each(|line| writeln!(f, "  {line}"))?;
        let columns: [Column<Peer>; 16] = [
            ("to", Left, |of| of.rank.clone()),
            ("port", Left, |of| of.port.clone()),
            ("GID", Left, |of| of.gid.clone()),
            ("state", Left, |of| of.state.to_owned()),
            ("queue pair", Left, |of| format!("{:#x}", of.queue_pair)),
            ("there", Left, |of| format!("{:#x}", of.remote_queue_pair)),
            ("rails", Right, |of| of.rails.to_string()),
            ("requests", Right, |of| of.requests.to_string()),
            ("in flight", Right, |of| of.in_flight.to_string()),
            ("waiting", Right, |of| of.waiting.to_string()),
            ("waits", Right, |of| of.waits_begun.to_string()),
            ("held back", Right, |of| of.held_back.to_string()),
            ("hellos", Right, |of| of.asked.to_string()),
            ("timeout", Right, |of| known(of.acknowledgement_timeout_nanoseconds, |of| duration(of.cast_signed()))),
            ("retries", Right, |of| format!("<= {}", of.retries_at_most)),
            ("age", Right, |of| format!("{:.1} s", of.age_seconds)),
        ];
        writeln!(f, "\n{}", table_of(&columns, &self.peers))?;
        let count = |port: &Port, name: &str| port.counts.get(name).copied().unwrap_or(0);
        let ways = self.ports.iter().flat_map(|port| WAYS.iter().map(move |way| (port, way)));
        let rows = ways.filter(|(port, way)| count(port, way.1) > 0).map(|(port, (what, number, size))| {
            let size = known(*size, |size| bytes(count(port, size)));
            vec![port.name.clone(), (*what).to_owned(), count(port, number).to_string(), size]
        });
        writeln!(f, "\n{}", table(&["port", "what", "count", "bytes"], &[2, 3], rows))?;
        let troubles = self.ports.iter().flat_map(|port| {
            let own = TROUBLES.iter().map(|(what, name)| ((*what).to_owned(), count(port, name)));
            let adapter = port.adapter.iter().map(|(name, value)| (format!("{name} (adapter, all processes)"), *value));
            own.chain(adapter).map(move |(what, value)| vec![port.name.clone(), what, value.to_string()])
        });
        let rows = troubles.filter(|row| row[2] != "0");
        writeln!(f, "\n{}", table(&["port", "beside that", "count"], &[2], rows))?;
        writeln!(f, "\nNot known")?;
        self.unknown.iter().try_for_each(|what| writeln!(f, "  - {what}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::tests::flight;

    #[test]
    fn the_receipt_of_a_process_has_each_peer_and_port_and_lists_unknown_values() {
        let flight = flight(1_000_000_000, &[("inline_sent", 12), ("inline_bytes", 96), ("queued", 2)]);
        let counted = Counted::of(&flight, 3_000_000_000);
        let json = serde_json::to_value(&counted).expect("JSON");
        let peer = &json["peers"][0];
        assert_eq!((&peer["peer"], &peer["port"], &peer["requests"]), (&"1".into(), &"mlx5_0:1".into(), &40.into()));
        assert_eq!(
            (&peer["acknowledgement_timeout_nanoseconds"], &peer["age_seconds"]),
            (&67_108_864.into(), &2.0.into())
        );
        assert_eq!(json["peers"][1]["peer"], "11.0");
        assert_eq!((&json["ports"][0]["counts"]["queued"], &json["ports"][0]["gid"]), (&2.into(), &"fe80::1".into()));
        let text = counted.to_string();
        for words in
            ["Rank 3 of job 9", "fe80::1", "0x101", "67.1 ms", "sent inline", "96 B", "that waited", "ibex trace -o"]
        {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}
