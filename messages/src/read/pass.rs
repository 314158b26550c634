// SPDX-License-Identifier: MIT OR Apache-2.0
//! One pass over the trace of a process, which collects messages, communicators, connections and incidents. Events of a
//! thread come in the order in which they were raised, those of several threads by their times, which adapter clocks
//! make uncertain. Called by `mod.rs` for each file. Path: pending, once per event. Threads: one. Tests: tests/.

use std::collections::{BTreeSet, HashMap};

use ibex_trace::{Error, Reader, Source};

use crate::model::{Call, Connection, Incident, IncidentKind, Loss, Operation, OperationKind, Pause, Port};
use crate::read::calls::Calls;
use crate::read::groups::Groups;
use crate::read::half::{Continued, Envelope, Received, Sent};
use crate::read::matching::Matching;
use crate::read::searches::{Searched, Searches};
use crate::read::transfers::Transfers;
use crate::read::vocabulary::{Element, Kind, Seen, Stage, Step, Vocabulary};
use crate::time::Time;

/// The content of a process's trace. Until `mod.rs` translates them, other processes are ranks in the world, and ports
/// indexes of the process.
#[derive(Default)]
pub(crate) struct Process {
    pub(crate) sends: Vec<Sent>,
    pub(crate) received: Vec<Received>,
    pub(crate) groups: Groups,
    pub(crate) ports: Vec<Port>,
    pub(crate) connections: Vec<Connection>,
    pub(crate) operations: Vec<Operation>,
    pub(crate) incidents: Vec<Incident>,
    pub(crate) calls: Vec<Call>,
    /// Names of functions that `calls` refers to.
    pub(crate) functions: Vec<String>,
    /// Whether `calls` has all calls.
    pub(crate) has_calls: bool,
    pub(crate) fragments: Vec<Continued>,
    pub(crate) searches: Vec<Searched>,
    pub(crate) cancelled: Vec<crate::ReceiveSide>,
    pub(crate) pauses: Vec<Pause>,
    pub(crate) losses: Vec<Loss>,
    pub(crate) threads: BTreeSet<u32>,
    pub(crate) span: Option<(Time, Time)>,
    /// Whether it has no messages, because another PML has done the matching.
    pub(crate) is_below_another: bool,
    pub(crate) gaps: Gaps,
    pub(crate) faults: Vec<String>,
}

/// Reasons why events of messages may be missing.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gaps {
    /// Anywhere, because events were lost, or blocks of them are damaged.
    pub(crate) within: bool,
    /// The recording started late.
    pub(crate) before: bool,
    /// The trace is truncated.
    pub(crate) after: bool,
}

/// More nanoseconds than an adapter's clock differs from its host's; fewer than until a number is reused.
const CLOCKS_DIFFER: i64 = 1_000_000;

struct Pass {
    matching: Matching,
    transfers: Transfers,
    calls: Calls,
    searches: Searches,
    searched: bool,
    adapters: Vec<bool>,
    /// Indexes of operations that have begun, by their numbers.
    operations: HashMap<(OperationKind, u64), usize>,
    /// Operations whose end came before their begin: the adapter's clock may be a little behind the host's.
    early: HashMap<(OperationKind, u64), usize>,
    connections: HashMap<(u32, u32), usize>,
    process: Process,
}

impl Process {
    /// Returns the envelopes of all halves of messages.
    pub(crate) fn envelopes(&self) -> impl Iterator<Item = &Envelope> {
        let sent = self.sends.iter().map(|sent| &sent.envelope);
        sent.chain(self.received.iter().map(|received| &received.envelope))
    }

    pub(crate) fn read(reader: &Reader, timeline: impl Fn(i64) -> i64) -> Process {
        let vocabulary = Vocabulary::new(reader.head());
        let mut pass = Pass {
            matching: Matching::default(),
            transfers: Transfers::default(),
            calls: Calls::new(reader.head()),
            searches: Searches::default(),
            searched: searched(reader, &vocabulary),
            adapters: reader.head().sources.iter().map(is_adapter).collect(),
            operations: HashMap::new(),
            early: HashMap::new(),
            connections: HashMap::new(),
            process: Process { ports: ports(reader), ..Process::default() },
        };
        let (mut first, mut last, mut timeless, mut last_thread) = (i64::MAX, i64::MIN, 0_u64, None);
        for event in reader.interleaved() {
            let event = match event {
                Ok(event) => event,
                Err(error) => {
                    pass.fault(&error);
                    continue;
                }
            };
            let time = event.time.map(&timeline);
            match time {
                Some(time) => (first, last) = (first.min(time), last.max(time)),
                None => timeless += 1,
            }
            if last_thread != Some(event.thread) {
                last_thread = Some(event.thread);
                pass.process.threads.insert(event.thread);
            }
            if let Some(seen) = vocabulary.seen(&event) {
                pass.see(&seen, time.map(Time::new), event.thread);
            }
        }
        pass.process.span = (first <= last).then(|| (Time::new(first), Time::new(last)));
        pass.lost(reader, &vocabulary);
        pass.ended(reader, &vocabulary, timeless)
    }
}

impl Pass {
    fn see(&mut self, seen: &Seen<'_>, time: Option<Time>, thread: u32) {
        match seen.kind {
            Kind::Matching(step) => {
                let call = self.calls.of(step, seen, thread);
                if self.searched {
                    self.searches.see(step, seen, thread);
                }
                self.matching.see(step, seen, time, thread, call);
            }
            Kind::SearchBegin(queue) => self.searches.begin(queue, seen, time, thread),
            Kind::SearchEnd(queue) => self.searches.end(queue, seen, time, thread),
            Kind::Protocol => self.matching.see_protocol(seen, time, thread),
            Kind::Created => self.process.groups.create(seen, time),
            Kind::Freed => self.process.groups.free(seen, time),
            Kind::Transfer(transfer) => {
                let is_by_adapter = self.adapters.get(seen.source()).copied().unwrap_or_default();
                self.transfers.see(transfer, seen, time, (thread, is_by_adapter));
            }
            // It is part of a message; the transfer events describe it.
            Kind::Started(_) | Kind::Complete(_) if seen.value(Element::Request) != 0 => {}
            Kind::Started(kind) => self.operation_begins(kind, seen, time),
            Kind::Complete(kind) => self.operation_ends(kind, seen, time),
            Kind::Connection(stage) => self.connection(stage, seen, time),
            Kind::Rare(kind) => self.rare(kind, seen, time),
            Kind::CallBegin => self.calls.begin(seen, time, thread),
            Kind::CallEnd => self.calls.end(seen, time, thread),
            Kind::Control => self.control(seen, time),
        }
    }

    fn operation_begins(&mut self, kind: OperationKind, seen: &Seen<'_>, time: Option<Time>) {
        let (key, next) = ((kind, seen.value(Element::Operation)), self.process.operations.len());
        if let Some(at) = self.early.remove(&key) {
            let of = &mut self.process.operations[at];
            if time.zip(of.completed).is_some_and(|(begun, ended)| begun.since(ended) < CLOCKS_DIFFER) {
                of.begun = time.min(of.completed);
                return;
            }
        }
        self.operations.insert(key, next);
        self.process.operations.push(operation(kind, seen, time));
    }

    fn operation_ends(&mut self, kind: OperationKind, seen: &Seen<'_>, time: Option<Time>) {
        let key = (kind, seen.value(Element::Operation));
        let at = self.operations.remove(&key).unwrap_or_else(|| {
            self.process.operations.push(operation(kind, seen, None));
            let at = self.process.operations.len() - 1;
            self.early.insert(key, at);
            at
        });
        let operation = &mut self.process.operations[at];
        (operation.completed, operation.status) = (time, seen.unsigned(Element::Status));
    }

    fn connection(&mut self, stage: Stage, seen: &Seen<'_>, time: Option<Time>) {
        let (peer, port) = (seen.unsigned(Element::Peer), seen.unsigned(Element::Port));
        let connections = &mut self.process.connections;
        let mut add = |begun| {
            connections.push(Connection { peer, port: Some(port), begun, ..Connection::default() });
            connections.len() - 1
        };
        let key = (peer, port);
        match stage {
            Stage::Begin => {
                let at = add(time);
                self.connections.insert(key, at);
            }
            Stage::Established => {
                let at = self.connections.get(&key).copied().unwrap_or_else(|| add(None));
                // The entry stays, because the connection may fail later.
                self.connections.insert(key, at);
                let connection = &mut self.process.connections[at];
                connection.established = time;
                connection.queue_pair = seen.unsigned(Element::QueuePair);
                connection.remote_queue_pair = seen.unsigned(Element::Remote);
            }
            Stage::Failed => {
                let at = self.connections.remove(&key).unwrap_or_else(|| add(None));
                let connection = &mut self.process.connections[at];
                (connection.failed, connection.status) = (time, seen.unsigned(Element::Status));
                if connection.queue_pair == 0 {
                    connection.queue_pair = seen.unsigned(Element::QueuePair);
                }
            }
        }
    }

    fn rare(&mut self, kind: IncidentKind, seen: &Seen<'_>, time: Option<Time>) {
        let value = match kind {
            IncidentKind::QueuedBegin | IncidentKind::QueuedEnd | IncidentKind::ReceiverNotReady => Element::Waiting,
            IncidentKind::RegistrationMiss | IncidentKind::RegistrationEvict => Element::Bytes,
            IncidentKind::DeviceAsync | IncidentKind::PortAsync => Element::Event,
        };
        let Some(time) = time else { return };
        let peer = seen.has(Element::Peer).then(|| seen.unsigned(Element::Peer));
        let port = seen.has(Element::Port).then(|| seen.unsigned(Element::Port));
        self.process.incidents.push(Incident { rank: 0, time, kind, peer, port, value: seen.value(value) });
    }

    fn control(&mut self, seen: &Seen<'_>, time: Option<Time>) {
        self.calls.interrupt();
        self.matching.interrupt();
        let Some(time) = time else {
            self.process.gaps.within = true;
            return;
        };
        let last = self.process.pauses.last_mut().filter(|pause| pause.to.is_none());
        match (seen.value(Element::Level), last) {
            (0, None) => self.process.pauses.push(Pause { rank: 0, from: time, to: None }),
            (1, Some(pause)) => pause.to = Some(time),
            _ => {}
        }
    }

    fn fault(&mut self, error: &Error) {
        match error {
            Error::Truncated { .. } | Error::Unfinished { .. } => self.process.gaps.after = true,
            _ => self.process.gaps.within = true,
        }
        self.process.faults.push(format!("{error}."));
    }

    /// Adds the lost events; returns whether messages may miss some of them.
    fn lost(&mut self, reader: &Reader, vocabulary: &Vocabulary) {
        for (event_type, counts) in reader.counts().iter().enumerate().filter(|(_, counts)| counts.lost > 0) {
            let of_messages = matches!(
                vocabulary.kind(event_type),
                Some(Kind::Matching(_) | Kind::Protocol | Kind::Created | Kind::Freed)
            );
            self.process.gaps.within |= of_messages;
            let event = reader.head().types[event_type].name.clone();
            self.process.losses.push(Loss { rank: 0, event, count: counts.lost });
        }
    }

    fn ended(mut self, reader: &Reader, vocabulary: &Vocabulary, timeless: u64) -> Process {
        let name = reader.file().display();
        let has = |step| vocabulary.has(Kind::Matching(step));
        let process = &mut self.process;
        process.gaps.after |= !reader.is_finished();
        if timeless > 0 {
            process.faults.push(format!(
                "{name}: {timeless} events have no time, because their clock was never compared with the host's."
            ));
        }
        // Without losses and pauses, ends without begins show that the listener was registered late.
        if self.matching.headless() > 0
            && has(Step::Activate)
            && has(Step::Arrived)
            && !process.gaps.within
            && process.pauses.is_empty()
        {
            process.gaps.before = true;
        }
        if self.matching.torn > 0 {
            let torn = self.matching.torn;
            process.faults.push(format!(
                "{name}: {torn} matches of a receive and a message are inconsistent; these messages may lack their receives."
            ));
        }
        // The transfer events describe the same fragments with more detail.
        let (told, more) = (&mut self.matching.fragments, &mut self.transfers.fragments);
        process.fragments = std::mem::take(if more.is_empty() { told } else { more });
        process.cancelled = self.matching.cancelled();
        let (sends, received, unknown) = self.matching.halves(&self.calls);
        if unknown > 0 {
            process
                .faults
                .push(format!("{name}: {unknown} messages are left out, because their sender or receiver is unknown."));
        }
        let has_lost = reader.counts().iter().enumerate().any(|(event_type, counts)| {
            counts.lost > 0 && matches!(vocabulary.kind(event_type), Some(Kind::CallBegin | Kind::CallEnd))
        });
        let has_types = vocabulary.has(Kind::CallBegin) && vocabulary.has(Kind::CallEnd);
        process.has_calls = has_types && !has_lost && !process.gaps.within;
        process.searches = self.searches.all;
        (process.calls, process.functions) = (self.calls.all, self.calls.functions);
        (process.sends, process.received) = (sends, received);
        let is_empty = process.sends.is_empty() && process.received.is_empty();
        process.is_below_another = is_empty && self.transfers.below_another;
        self.transfers.time(&mut process.sends, &mut process.received);
        if is_empty && !process.is_below_another && !has(Step::Activate) && !has(Step::Arrived) {
            process.faults.push(format!("{name} was recorded without message events."));
        }
        self.process
    }
}

fn operation(kind: OperationKind, seen: &Seen<'_>, begun: Option<Time>) -> Operation {
    let (peer, bytes) = (seen.unsigned(Element::Peer), seen.value(Element::Bytes));
    Operation { rank: 0, peer, kind, bytes, begun, completed: None, status: 0 }
}

fn searched(reader: &Reader, vocabulary: &Vocabulary) -> bool {
    let is_search = |event_type| matches!(vocabulary.kind(event_type), Some(Kind::SearchBegin(_)));
    reader.counts().iter().enumerate().any(|(event_type, counts)| counts.events > 0 && is_search(event_type))
}

fn is_adapter(source: &Source) -> bool {
    !source.name.starts_with("host:")
}

/// Returns the ports among the sources of a file: a name is `DEVICE:PORT`, the description ends with the GID.
fn ports(reader: &Reader) -> Vec<Port> {
    let sources = reader.head().sources.iter().filter(|source| is_adapter(source));
    let named = sources.filter_map(|source| {
        let (device, number) = source.name.rsplit_once(':')?;
        let gid = source.description.rsplit_once("GID ").map_or("", |(_, gid)| gid);
        let gid = gid.split([',', ';', ' ']).next().unwrap_or_default();
        Some((device.to_owned(), number.parse().ok()?, gid.to_owned()))
    });
    (0..).zip(named).map(|(index, (device, number, gid))| Port { rank: 0, index, device, number, gid }).collect()
}
