// SPDX-License-Identifier: MIT OR Apache-2.0
//! Joins the halves of messages: sends with arrivals. Called by `mod.rs` when all processes are read. Sorts halves by
//! communicator, sender, receiver and tag, and aligns equal ones (`align.rs`). Unpaired halves become messages with one
//! side. Path: pending, once per message. Threads: one. Tests: tests/.

use std::collections::{BTreeMap, HashMap};

use crate::model::{Job, Message};
use crate::read::align::{End, How, align, align_between};
use crate::read::communicators::Communicators;
use crate::read::half::{Received, Sent};
use crate::read::pass::{Gaps, Process};
use crate::time::Time;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    communicator: u32,
    sender: u32,
    receiver: u32,
    tag: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Half {
    key: Key,
    /// Position among the halves with the same key.
    order: i64,
    process: u32,
    at: u32,
}

#[derive(Debug, Default, Clone, Copy)]
struct Doubt {
    sends: u64,
    arrivals: u64,
    likely: u64,
}

/// Number of pairs of ranks for which [`tell`] writes a sentence.
const MOST_SENTENCES: usize = 16;

/// Puts the messages of all processes into the job; `places` are the processes' indexes among its ranks.
pub(crate) fn join(job: &mut Job, mut processes: Vec<Process>, places: &[u32], communicators: &Communicators) {
    let (mut sends, mut arrivals, mut all) = (Vec::new(), Vec::new(), 0);
    for (number, process) in (0..).zip(&processes) {
        let rank = places[number as usize];
        let by_time = process.threads.len() > 1;
        let order = |at: u32, time: Option<Time>| time.filter(|_| by_time).map_or(i64::from(at), Time::nanoseconds);
        let half = |at, envelope, time, is_send| {
            let key = key(envelope, (number, rank), time, communicators, is_send)?;
            Some(Half { key, order: order(at, time), process: number, at })
        };
        all += process.sends.len() + process.received.len();
        sends.extend((0..).zip(&process.sends).filter_map(|(at, of)| half(at, of.envelope, of.first(), true)));
        arrivals.extend((0..).zip(&process.received).filter_map(|(at, of)| half(at, of.envelope, of.first(), false)));
    }
    let unknown = all - sends.len() - arrivals.len();
    if unknown > 0 {
        job.faults
            .push(format!("{unknown} messages are left out, because the members of their communicators are unknown."));
    }
    sends.sort_unstable();
    arrivals.sort_unstable();
    let mut gaps: Vec<Option<Gaps>> = vec![None; job.ranks.len()];
    for (place, process) in places.iter().zip(&processes) {
        gaps[*place as usize] = Some(process.gaps);
    }
    let queue_pairs = queue_pairs(job);
    job.messages.reserve_exact(sends.len().max(arrivals.len()));
    let mut doubts: BTreeMap<(u32, u32), Doubt> = BTreeMap::new();
    let mut pairs = Vec::new();
    let (mut sent, mut came): (&[Half], &[Half]) = (&sends, &arrivals);
    let (mut of_sends, mut of_arrivals) = (Vec::new(), Vec::new());
    while let Some(key) = sent.first().into_iter().chain(came.first()).map(|half| half.key).min() {
        let (ones, later) = sent.split_at(sent.partition_point(|half| half.key == key));
        let (others, later_ones) = came.split_at(came.partition_point(|half| half.key == key));
        (sent, came) = (later, later_ones);
        of_sends.clear();
        of_sends.extend(ones.iter().map(|half| processes[half.process as usize].sends[half.at as usize].end()));
        of_arrivals.clear();
        of_arrivals.extend(others.iter().map(|half| processes[half.process as usize].received[half.at as usize].end()));
        let sides = (gaps[key.sender as usize], gaps[key.receiver as usize]);
        let both = (sides.0.unwrap_or_default(), sides.1.unwrap_or_default());
        let (ends, late) = ((&of_sends[..], &of_arrivals[..]), tolerance(job, key));
        let cuts = (cuts(job, key.sender, &of_sends), cuts(job, key.receiver, &of_arrivals));
        let how = if cuts.0.is_empty() && cuts.1.is_empty() {
            align(ends, both, late, &mut pairs)
        } else {
            align_between(ends, (&cuts.0, &cuts.1), both, late, &mut pairs)
        };
        if sides.0.is_some() && sides.1.is_some() {
            let doubt = doubts.entry((key.sender, key.receiver)).or_default();
            doubt.sends += (ones.len() - pairs.len()) as u64;
            doubt.arrivals += (others.len() - pairs.len()) as u64;
            doubt.likely += if how == How::Likely { pairs.len() as u64 } else { 0 };
        }
        put(job, (&processes, &queue_pairs), key, (ones, others), &pairs);
    }
    drop((sends, arrivals));
    for process in &mut processes {
        (process.sends, process.received) = (Vec::new(), Vec::new());
    }
    tell(job, &doubts, &gaps);
}

/// Returns the indexes among the halves of a rank at which its program stopped the recording.
fn cuts(job: &Job, rank: u32, halves: &[End]) -> Vec<usize> {
    let place = |from: Time| halves.partition_point(|half| half.time.is_none_or(|time| time < from.nanoseconds()));
    let first = job.pauses.partition_point(|pause| pause.rank < rank);
    job.pauses[first..].iter().take_while(|pause| pause.rank == rank).map(|pause| place(pause.from)).collect()
}

fn key(
    envelope: crate::read::half::Envelope,
    (process, rank): (u32, u32),
    time: Option<Time>,
    communicators: &Communicators,
    is_send: bool,
) -> Option<Key> {
    let (communicator, others) = communicators.meant(process as usize, envelope.context, time)?;
    let peer = *others.get(usize::try_from(envelope.peer).ok()?)?;
    let (sender, receiver) = if is_send { (rank, peer) } else { (peer, rank) };
    Some(Key { communicator, sender, receiver, tag: envelope.tag })
}

/// Returns the nanoseconds by which a message may seem to arrive before it is sent.
fn tolerance(job: &Job, key: Key) -> i64 {
    let (sender, receiver) = (&job.ranks[key.sender as usize], &job.ranks[key.receiver as usize]);
    match (sender.clock_error, receiver.clock_error) {
        (Some(one), Some(other)) => one.saturating_add(other).saturating_add(1_000),
        _ if sender.host == receiver.host => 10_000,
        // The clocks were never compared.
        _ => i64::MAX,
    }
}

/// Makes the messages of a key, pairs and unpaired halves, in the order of both.
fn put(
    job: &mut Job,
    (processes, queue_pairs): (&[Process], &QueuePairs),
    key: Key,
    (ones, others): (&[Half], &[Half]),
    pairs: &[(u32, u32)],
) {
    let sent = |at: usize| &processes[ones[at].process as usize].sends[ones[at].at as usize];
    let received = |at: usize| &processes[others[at].process as usize].received[others[at].at as usize];
    let mut partner = vec![u32::MAX; ones.len()];
    let mut has_partner = vec![false; others.len()];
    for (send, arrival) in pairs {
        partner[*send as usize] = *arrival;
        has_partner[*arrival as usize] = true;
    }
    let first_port = |rank: u32| job.ports.partition_point(|port| port.rank < rank) as u32;
    let first = first_port(key.sender);
    let ports = first_port(key.sender + 1) - first;
    for (at, partner) in partner.iter().enumerate() {
        let received = (*partner != u32::MAX).then(|| received(*partner as usize));
        let message = message(key, Some(sent(at)), received, ((first, ports), queue_pairs));
        job.messages.push(message);
    }
    for at in (0..others.len()).filter(|at| !has_partner[*at]) {
        job.messages.push(message(key, None, Some(received(at)), ((first, ports), queue_pairs)));
    }
}

/// First queue pair from a rank to another, by the port's index in the job.
type QueuePairs = HashMap<(u32, u32, u32), u32>;

fn queue_pairs(job: &Job) -> QueuePairs {
    let mut queue_pairs = QueuePairs::new();
    for of in job.connections.iter().filter(|of| of.queue_pair != 0) {
        if let Some(port) = of.port {
            queue_pairs.entry((of.rank, of.peer, port)).or_insert(of.queue_pair);
        }
    }
    queue_pairs
}

fn message(
    key: Key,
    sent: Option<&Sent>,
    received: Option<&Received>,
    ((first, ports), queue_pairs): ((u32, u32), &QueuePairs),
) -> Message {
    let envelope = sent.map(|sent| sent.envelope).or(received.map(|received| received.envelope));
    let (tag, bytes) = envelope.map_or((0, 0), |envelope| (envelope.tag, envelope.bytes));
    let route = sent.map(|sent| sent.route).unwrap_or_default();
    let port = route.port.filter(|port| *port < ports).map(|port| first + port);
    // A message announced before there was a connection went by the first connection.
    let connected = || queue_pairs.get(&(key.sender, key.receiver, port?)).copied();
    Message {
        sender: key.sender,
        receiver: key.receiver,
        communicator: key.communicator,
        tag,
        bytes,
        protocol: route.protocol.or(received.and_then(|received| received.protocol)),
        reason: route.reason.or(received.and_then(|received| received.reason)),
        port,
        queue_pair: Some(route.queue_pair).filter(|number| *number != 0).or_else(connected),
        rails: route.rails,
        send: sent.map(|sent| sent.side),
        receive: received.map(|received| received.side),
    }
}

impl Sent {
    fn end(&self) -> End {
        let time = self.first().map(Time::nanoseconds);
        End { bytes: self.envelope.bytes, time }
    }
}

impl Received {
    fn end(&self) -> End {
        let time = self.first().map(Time::nanoseconds);
        End { bytes: self.envelope.bytes, time }
    }
}

fn tell(job: &mut Job, doubts: &BTreeMap<(u32, u32), Doubt>, gaps: &[Option<Gaps>]) {
    let mut sentences = Vec::new();
    for ((sender, receiver), doubt) in doubts {
        let why = why(job, *sender, *receiver, gaps);
        let between = format!("From rank {} to rank {}", name(job, *sender), name(job, *receiver));
        if doubt.sends + doubt.arrivals > 0 {
            let (sends, arrivals) = (doubt.sends, doubt.arrivals);
            sentences.push(format!(
                "{between}: {sends} messages have only the sender's side, {arrivals} only the receiver's: {why}."
            ));
        }
        if doubt.likely > 0 {
            let likely = doubt.likely;
            sentences.push(format!(
                "{between}: {likely} messages are joined by order, sizes and times only; some may belong to a neighbour: {why}."
            ));
        }
    }
    let more = sentences.len().saturating_sub(MOST_SENTENCES);
    sentences.truncate(MOST_SENTENCES);
    job.faults.append(&mut sentences);
    if more > 0 {
        job.faults.push(format!("{more} more pairs of ranks have such messages."));
    }
}

fn why(job: &Job, sender: u32, receiver: u32, gaps: &[Option<Gaps>]) -> String {
    let mut reasons = Vec::new();
    let mut ranks = vec![sender, receiver];
    ranks.dedup();
    for rank in ranks {
        let Some(gaps) = gaps[rank as usize] else { continue };
        let name = name(job, rank);
        if gaps.within {
            reasons.push(format!("events of rank {name} are lost"));
        }
        if job.pauses.iter().any(|pause| pause.rank == rank) {
            reasons.push(format!("the program of rank {name} stopped the recording for a time"));
        }
        if gaps.before {
            reasons.push(format!("the recording of rank {name} started late"));
        }
        if gaps.after {
            reasons.push(format!("the trace of rank {name} is truncated"));
        }
    }
    if reasons.is_empty() { "the traces do not say why".to_owned() } else { reasons.join(", and ") }
}

pub(crate) fn name(job: &Job, place: u32) -> String {
    let rank = &job.ranks[place as usize];
    if rank.world == 0 { rank.rank.to_string() } else { format!("{} of world {}", rank.rank, rank.world) }
}
