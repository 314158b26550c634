// SPDX-License-Identifier: MIT OR Apache-2.0
//! A simulated endpoint: libfabric's rules as the provider has them (`ibex::libfabric`), over a simulated port and
//! invented memory, with a queue and counters for each direction. Called by `world`. Grade: test. Threads: one. Tests:
//! those of the crate.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ibex::libfabric::{
    self, BoundQueue, Completion, Environment, Failure, Kind, Message, Others, Recorder, Reports, Setup, Wanted, fi,
};
use ibex::messenger::events::Event;
use ibex::messenger::host::{Process as _, Rail};
use ibex::peer::PeerName;
use ibex::transport::adapter::simulated::{Adapter, Fabric};
use ibex::transport::{Completion as PortEvent, EndpointId, Port, Token};
use ibex::tunables::Tunables;

use super::memory::{Data, OfPort};
use crate::memory::Memory;
use crate::process::{Settings, name};

/// The types of simulated endpoints.
pub(super) enum Simulated {}

pub(super) type State = libfabric::State<Simulated>;
pub(super) type Shared = libfabric::Shared<Adapter>;

impl Environment for Simulated {
    type Adapter = Adapter;
    type Data = Data;
    type Memory = OfPort;
    type Vector = Vector;
    type Queue = Queue;
    type Counter = Counter;
    type Recorder = Never;
    type Others = NoOthers;

    fn tell_lost(_: &str) {}

    fn arm(_: &mut Port<Adapter>) {}
}

/// Locks what one thread uses.
fn locked<T, R>(of: &Mutex<T>, use_it: impl FnOnce(&mut T) -> R) -> R {
    use_it(&mut of.lock().unwrap_or_else(PoisonError::into_inner))
}

/// An address vector: the address of each process differs from endpoint to endpoint.
pub(super) struct Vector {
    me: u32,
    processes: u32,
}

impl Vector {
    /// Returns the address of a process.
    pub(super) fn address_of(&self, rank: u32) -> fi::Address {
        u64::from((rank + self.me) % self.processes)
    }

    /// Returns the process with an address.
    pub(super) fn rank_of(&self, address: fi::Address) -> u32 {
        (address as u32 + self.processes - self.me % self.processes) % self.processes
    }
}

impl libfabric::Vector for Vector {
    fn name(&self, address: fi::Address) -> Option<PeerName> {
        (address < u64::from(self.processes)).then(|| name(self.rank_of(address)))
    }

    fn address(&self, name: PeerName) -> Option<fi::Address> {
        Some(self.address_of(name.rank))
    }
}

/// A completion: the error and the excess of one that failed.
pub(super) type Ended = (Completion, Option<(u32, usize)>);

/// A completion queue.
#[derive(Default)]
pub(super) struct Queue(Mutex<VecDeque<Ended>>);

impl libfabric::Queue for Queue {
    fn push(&self, completion: Completion) {
        locked(&self.0, |all| all.push_back((completion, None)));
    }

    fn push_failure(&self, completion: Completion, Failure { error, excess, text }: Failure<'_>) {
        assert!(!text.is_empty(), "a failure has a reason");
        locked(&self.0, |all| all.push_back((completion, Some((error, excess)))));
    }
}

/// A counter: successes and failures.
#[derive(Default)]
pub(super) struct Counter(Mutex<[usize; 2]>);

impl libfabric::Counter for Counter {
    fn count(&self, has_failed: bool) {
        locked(&self.0, |all| all[usize::from(has_failed)] += 1);
    }
}

/// Nobody records.
#[derive(Clone, Copy)]
pub(super) enum Never {}

impl Recorder for Never {
    const CONTEXT: u32 = 0;

    fn wants(self, _: Event) -> bool {
        match self {}
    }

    fn numbers(self, _: u64) -> u64 {
        match self {}
    }

    fn put<const N: usize>(self, _: Event, _: &[u64; N]) {
        match self {}
    }
}

/// No one-sided operations.
pub(super) struct NoOthers(OfPort);

impl Others<Simulated> for NoOthers {
    fn memory(&mut self) -> &mut OfPort {
        &mut self.0
    }

    fn is_due(&self) -> bool {
        false
    }

    fn take_due(_: &mut State, _: &Shared) {}

    fn ended(&mut self, token: Token, _: &Reports<Queue, Counter>) -> bool {
        panic!("the port has no such request: {token:?}")
    }

    fn end_unanswered(&mut self, _: impl Fn(EndpointId) -> bool, _: &Reports<Queue, Counter>) {}

    fn handle(_: &mut State, _: &Shared, event: &PortEvent) {
        let of_port = matches!(event, PortEvent::PeerFailed { .. } | PortEvent::LinkChanged { .. });
        assert!(of_port, "nobody else uses the port");
    }
}

/// How an endpoint is opened.
#[derive(Clone, Copy)]
pub(super) struct Opened {
    /// Whether counters are bound, and whether only operations that ask for it are reported.
    pub(super) counts: bool,
    pub(super) is_selective: bool,
    /// Default flags of its sends and of its receives.
    pub(super) flags: [u64; 2],
}

pub(super) struct Endpoint {
    shared: Shared,
    state: State,
    pub(super) vector: Arc<Vector>,
    /// Of what it starts, and of what it receives.
    queues: [Arc<Queue>; 2],
    counters: [Arc<Counter>; 2],
    wraps: Option<u32>,
}

impl Endpoint {
    pub(super) fn open(
        (fabric, memory): (&Fabric, &Memory),
        (rank, processes): (u32, u32),
        settings: &Settings,
        opened: Opened,
    ) -> Self {
        let tunables = Tunables { probe_interval: settings.probe_interval, ..Tunables::default() };
        let mbps = 100_000;
        let (port, place, _) = fabric.open(name(rank), mbps, settings.sizes, &tunables);
        let rail = Rail {
            port: 0,
            mbps,
            max_inline: settings.sizes.inline as usize,
            copy_size: settings.eager,
            receive_size: settings.sizes.receive as usize,
            read_limit: settings.read,
        };
        let (queues, counters, vector) =
            (<[Arc<Queue>; 2]>::default(), <[Arc<Counter>; 2]>::default(), Arc::new(Vector { me: rank, processes }));
        let bound =
            |queue: &Arc<Queue>| Some(BoundQueue { queue: Arc::clone(queue), is_selective: opened.is_selective });
        let counted = counters.iter().map(Arc::clone).zip([fi::FI_SEND, fi::FI_RECV]);
        let reports = Reports {
            sends: bound(&queues[0]),
            receives: bound(&queues[1]),
            counters: counted.filter(|_| opened.counts).collect(),
        };
        let shared = Shared::new(port, rail);
        let setup = Setup {
            vector: Arc::clone(&vector),
            me: name(rank),
            reports,
            flags: opened.flags,
            others: NoOthers(OfPort { memory: memory.clone(), place }),
            recording: None,
            unexpected_memory: settings.unexpected_memory,
            window: settings.window,
            buffers: settings.buffers,
        };
        let state = State::new(&shared, setup);
        let wraps = settings.wraps.then(|| u32::MAX - 5 - rank % 32);
        Endpoint { shared, state, vector, queues, counters, wraps }
    }

    /// Lets the numbers of new connections' requests wrap soon, in worlds where they do.
    pub(super) fn wind(&mut self) {
        if let (Some(requests), Some(mut port)) = (self.wraps, self.shared.enter_port(0)) {
            port.skip_requests(requests);
        }
    }

    /// Sends with these flags, or with those of the endpoint.
    pub(super) fn send(&mut self, of: (Kind, usize), message: Message, data: Data, flags: Option<u64>, default: u64) {
        let is_sent = match (&data, flags) {
            (Data::Piece(piece), None) => {
                piece.inline(|span| self.state.is_sent_plainly(&self.shared, of, message, span))
            }
            _ => false,
        };
        if !is_sent {
            let sent = self.state.send_with(&self.shared, of, message, data, flags.unwrap_or(default));
            sent.expect("the address is there");
        }
    }

    pub(super) fn inject(&mut self, kind: Kind, message: Message, data: Data) {
        let is_sent = match &data {
            Data::Piece(piece) => {
                piece.inline(|span| self.state.is_injected_plainly(&self.shared, kind, message, span))
            }
            _ => false,
        };
        if !is_sent {
            self.state.inject(&self.shared, kind, message, data).expect("the address is there");
        }
    }

    /// Receives or searches with these flags, or with those of the endpoint, which are none.
    pub(super) fn receive(&mut self, of: (Kind, usize), wanted: Wanted, data: Data, flags: Option<u64>, least: usize) {
        let is_posted = match (&data, flags) {
            (Data::Piece(piece), None) => self.state.is_received_plainly(&self.shared, of, wanted, piece.clone()),
            _ => false,
        };
        if !is_posted {
            let posted = self.state.receive_with(&self.shared, of, wanted, data, (flags.unwrap_or(0), least));
            posted.expect("the address is there");
        }
    }

    /// Cancels a posted receive. Returns whether there was one.
    pub(super) fn cancel(&mut self, context: usize) -> bool {
        let is_cancelled = self.state.cancel(context);
        self.state.put_late(&self.shared);
        is_cancelled
    }

    /// Polls once. Returns the number of completions.
    pub(super) fn progress(&mut self) -> usize {
        self.state.progress(&self.shared)
    }

    /// Takes what was reported since the last call.
    pub(super) fn take_ended(&mut self) -> Vec<Ended> {
        self.queues.iter().flat_map(|queue| locked(&queue.0, std::mem::take)).collect()
    }

    /// Numbers of sends and of receives that have succeeded and failed, by the counters.
    pub(super) fn counts(&self) -> [[usize; 2]; 2] {
        [0, 1].map(|direction: usize| locked(&self.counters[direction].0, |counts| *counts))
    }

    /// Begins to leave: what is outstanding ends without a report.
    pub(super) fn stop_reporting(&mut self) {
        self.state.stop_reporting();
    }

    /// Whether a message has not arrived that a peer may still take.
    pub(super) fn owes_messages(&mut self) -> bool {
        self.state.owes_messages(&self.shared)
    }

    /// Longest time for which it waits until its messages have arrived.
    pub(super) fn patience(&self) -> Duration {
        self.shared.enter_port(0).map_or(Duration::ZERO, |port| port.connect_timeout())
    }

    pub(super) fn say_that_it_leaves(&mut self) {
        self.state.say_that_it_leaves(&self.shared);
    }

    /// Returns the failed connections, by rank.
    pub(super) fn lost(&self) -> Vec<u32> {
        let Some(port) = self.shared.enter_port(0) else { return Vec::new() };
        let all = (0..).map(EndpointId::from_index).map_while(|to| Some((to, port.peer_name(to)?)));
        all.filter(|(to, _)| port.failure(*to).is_some()).map(|(_, name)| name.rank).collect()
    }

    /// Returns what is not as it was before the first message: `None` if all is given back. `is_whole`: no peer is lost.
    pub(super) fn left(&self, is_whole: bool) -> Option<String> {
        self.state.left(is_whole)
    }

    /// Has the port ask for the completions of requests that asked for none.
    pub(super) fn reclaim(&mut self) {
        if let Some(mut port) = self.shared.enter_port(0) {
            port.reclaim(&mut |_| false);
        }
    }

    /// Describes its connections, for a failure.
    pub(super) fn describe(&self) -> String {
        let Some(port) = self.shared.enter_port(0) else { return String::new() };
        let all = (0..).map(EndpointId::from_index).take_while(|to| port.peer_name(*to).is_some());
        all.map(|to| port.describe(to)).collect::<Vec<_>>().join("\n")
    }
}
