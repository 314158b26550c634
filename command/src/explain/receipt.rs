// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receipt of a job's messages: protocols, reasons and waits for each pair of ranks and size class (powers of two);
//! and each rank's other activities. A trace has no retries of adapters; `ibex doctor` watches their counters. Grade:
//! setup. Tests: below.

use std::collections::BTreeMap;
use std::fmt;

use comfy_table::CellAlignment::{Left, Right};
use ibex_messages::{IncidentKind, Job, Message, Protocol, Reason, WaitKind};
use serde::Serialize;

use super::calls::{self, Called};
use super::text::{Column, bytes, duration, known, name, table_of};
use super::unknown::Unknown;

#[derive(Serialize)]
pub(super) struct Receipt {
    job: String,
    messages: usize,
    span_nanoseconds: Option<i64>,
    pairs: Vec<Alike>,
    ranks: Vec<Rest>,
    calls: Vec<Called>,
    #[serde(flatten)]
    unknown: Unknown,
}

/// Messages between two ranks with the same size class, protocol and reason.
#[derive(Serialize)]
struct Alike {
    sender: String,
    receiver: String,
    /// Largest size; the smallest is above half of it.
    up_to_bytes: u64,
    adapter: Option<String>,
    gid: Option<String>,
    queue_pair: Option<u32>,
    protocol: Option<Protocol>,
    reason: Option<Reason>,
    rails: u32,
    messages: u64,
    bytes: u64,
    waits: BTreeMap<WaitKind, i64>,
}

#[derive(Default, Serialize)]
struct Rest {
    rank: String,
    host: String,
    connections: usize,
    failed_connections: usize,
    receiver_not_ready: u64,
    registration_misses: u64,
    registered_bytes: u64,
    registration_evictions: u64,
    queued: u64,
    waits: BTreeMap<WaitKind, i64>,
    clock_error_nanoseconds: Option<i64>,
}

type Key = (u32, u32, u64, Option<u32>, Option<u32>, Option<Protocol>, Option<Reason>, u32);

impl Receipt {
    pub(super) fn of(job: &Job) -> Receipt {
        let mut pairs: BTreeMap<Key, Alike> = BTreeMap::new();
        let waits = job.message_waits();
        let mut waits = waits.iter().peekable();
        for (place, message) in job.messages.iter().enumerate() {
            let pair = pairs.entry(key(message)).or_insert_with(|| Alike::of(job, message));
            pair.messages += 1;
            pair.bytes = pair.bytes.saturating_add(message.bytes);
            while let Some((_, wait)) = waits.next_if(|(of, _)| *of == place) {
                let waited = pair.waits.entry(wait.kind).or_default();
                *waited = waited.saturating_add(wait.to.since(wait.from));
            }
        }
        Receipt {
            job: job.name.clone(),
            messages: job.messages.len(),
            span_nanoseconds: job.span.map(|(first, last)| last.since(first)),
            pairs: pairs.into_values().collect(),
            ranks: ranks(job),
            calls: calls::by_function(job),
            unknown: Unknown::of(job),
        }
    }
}

fn class(bytes: u64) -> u64 {
    bytes.checked_next_power_of_two().unwrap_or(u64::MAX)
}

fn key(message: &Message) -> Key {
    let (pair, how) = ((message.sender, message.receiver), (message.protocol, message.reason));
    (pair.0, pair.1, class(message.bytes), message.port, message.queue_pair, how.0, how.1, message.rails)
}

impl Alike {
    fn of(job: &Job, message: &Message) -> Alike {
        let port = message.port.and_then(|port| job.ports.get(port as usize));
        Alike {
            sender: name(job, message.sender),
            receiver: name(job, message.receiver),
            up_to_bytes: class(message.bytes),
            adapter: port.map(|port| format!("{}:{}", port.device, port.number)),
            gid: port.map(|port| port.gid.clone()).filter(|gid| !gid.is_empty()),
            queue_pair: message.queue_pair,
            protocol: message.protocol,
            reason: message.reason,
            rails: message.rails,
            messages: 0,
            bytes: 0,
            waits: BTreeMap::new(),
        }
    }
}

fn ranks(job: &Job) -> Vec<Rest> {
    let new = |(place, of): (u32, &ibex_messages::Rank)| Rest {
        rank: name(job, place),
        host: of.host.clone(),
        connections: job.connections.iter().filter(|of| of.rank == place).count(),
        failed_connections: job.connections.iter().filter(|of| of.rank == place && of.failed.is_some()).count(),
        clock_error_nanoseconds: of.clock_error,
        ..Rest::default()
    };
    let mut ranks: Vec<Rest> = (0..).zip(&job.ranks).map(new).collect();
    for of in &job.incidents {
        let Some(rank) = ranks.get_mut(of.rank as usize) else { continue };
        match of.kind {
            IncidentKind::ReceiverNotReady => rank.receiver_not_ready += 1,
            IncidentKind::RegistrationMiss => {
                rank.registration_misses += 1;
                rank.registered_bytes = rank.registered_bytes.saturating_add(of.value);
            }
            IncidentKind::RegistrationEvict => rank.registration_evictions += 1,
            IncidentKind::QueuedBegin => rank.queued += 1,
            _ => {}
        }
    }
    for of in job.process_waits() {
        if let Some(rank) = ranks.get_mut(of.rank as usize) {
            let waited = rank.waits.entry(of.wait.kind).or_default();
            *waited = waited.saturating_add(of.wait.to.since(of.wait.from));
        }
    }
    ranks
}

fn waited(waits: &BTreeMap<WaitKind, i64>, kind: WaitKind) -> String {
    known(waits.get(&kind).copied(), duration)
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = self.span_nanoseconds.map_or_else(|| "an unknown time".to_owned(), duration);
        writeln!(f, "Job {}: {} messages among {} ranks in {span}\n", self.job, self.messages, self.ranks.len())?;
        let columns: [Column<Alike>; 15] = [
            ("from", Left, |of| of.sender.clone()),
            ("to", Left, |of| of.receiver.clone()),
            ("up to", Right, |of| bytes(of.up_to_bytes)),
            ("messages", Right, |of| of.messages.to_string()),
            ("bytes", Right, |of| bytes(of.bytes)),
            ("protocol", Left, |of| known(of.protocol, |protocol| protocol.name().to_owned())),
            ("because", Left, |of| known(of.reason, |reason| reason.name().to_owned())),
            ("port", Left, |of| of.adapter.clone().unwrap_or_default()),
            ("GID", Left, |of| of.gid.clone().unwrap_or_default()),
            ("queue pair", Left, |of| known(of.queue_pair, |number| format!("{number:#x}"))),
            ("rails", Right, |of| if of.rails == 0 { String::new() } else { of.rails.to_string() }),
            ("late sender", Right, |of| waited(&of.waits, WaitKind::LateSender)),
            ("late receiver", Right, |of| waited(&of.waits, WaitKind::LateReceiver)),
            ("no progress", Right, |of| waited(&of.waits, WaitKind::NoProgress)),
            ("late wait", Right, |of| waited(&of.waits, WaitKind::LateWait)),
        ];
        writeln!(f, "{}\n", table_of(&columns, &self.pairs))?;
        let columns: [Column<Rest>; 12] = [
            ("rank", Left, |of| of.rank.clone()),
            ("host", Left, |of| of.host.clone()),
            ("connections", Right, |of| of.connections.to_string()),
            ("failed", Right, |of| of.failed_connections.to_string()),
            ("connecting", Right, |of| waited(&of.waits, WaitKind::Connection)),
            ("queued", Right, |of| of.queued.to_string()),
            ("in queues", Right, |of| waited(&of.waits, WaitKind::Queue)),
            ("receiver not ready", Right, |of| of.receiver_not_ready.to_string()),
            ("registrations", Right, |of| of.registration_misses.to_string()),
            ("registered", Right, |of| bytes(of.registered_bytes)),
            ("evictions", Right, |of| of.registration_evictions.to_string()),
            ("clock error", Right, |of| of.clock_error_nanoseconds.map_or_else(|| "not known".to_owned(), duration)),
        ];
        writeln!(f, "{}", table_of(&columns, &self.ranks))?;
        if !self.calls.is_empty() {
            writeln!(f, "\n{}", calls::shown(&self.calls))?;
        }
        write!(f, "{}", self.unknown)
    }
}
