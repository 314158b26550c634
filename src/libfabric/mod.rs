// SPDX-License-Identifier: MIT OR Apache-2.0
//! An endpoint as the messenger's host: libfabric's messages (`fi_tagged(3)`, `fi_msg(3)`) over the messenger.
//!
//! It needs no header of libfabric and no unsafe code: what an endpoint stands on ([`Environment`]) is C's in the
//! provider, and invented in the simulation. [`State`] is what a thread uses once it has entered the endpoint;
//! [`Shared`] has the port and what does not change. `calls` has what a program calls, `progress` the poll, `request`
//! the operations, `reports` and `completion` their ends, `lost` the ends of those whose peer is lost, `disconnect` the
//! endpoint's own end, `memory` and `peers` what the messenger asks about memory and peers, `tools` about tools. An
//! endpoint has two queues of receives, of tagged and of untagged messages ([`Kind`]), which the messenger knows as
//! communicators.
//!
//! Called by `provider/src/endpoint` and `simulation/src/libfabric`. Grade: hot. Threads: any that enters the endpoint,
//! one at a time. Tests: those of the callers, and `hw-tests`.

use std::cell::{RefCell, RefMut};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::messenger;
use crate::messenger::flow_control::state::Flow;
use crate::messenger::header::MAX_TAGGED_SIZE;
use crate::messenger::host::{self, Communicators, Data as _, Host, Process as _, Types};
use crate::messenger::matching::lengths::Lengths;
use crate::messenger::matching::{FiTag, MessageHandle, Tagged};
use crate::messenger::rails::Rails;
use crate::messenger::receive::queues::Queues;
use crate::messenger::route::Route;
use crate::peer::PeerName;
use crate::transport::adapter::Adapter;
use crate::transport::{Batch, Port};

mod calls;
mod completion;
mod disconnect;
mod environment;
pub mod fi;
mod lost;
mod memory;
mod peers;
mod progress;
mod reports;
mod request;
mod tools;

pub use calls::{DELIVERED, Message, SEARCH, Wanted};
pub use completion::{Completion, Failure};
pub use environment::{Counter, Data, Environment, Memory, Others, Piece, Queue, Recorder, Vector};
pub use peers::OURSELVES;
pub use reports::{BoundQueue, Reports};
pub use request::{Handle, Request, Requests};
pub use tools::ELEMENTS;

use calls::Report;
use calls::multi_recv::Buffers;
use peers::Peers;
use request::{Core, Hears, Outcome};

/// The result of a call; an error is a positive number of libfabric.
pub type Result<T> = std::result::Result<T, u32>;

/// A piece of memory of a program.
pub type PieceOf<E> = <<E as Environment>::Data as Data>::Piece;

type RegisteredOf<E> = <<E as Environment>::Memory as Memory>::Registered;

/// A tag, and the remote CQ data of a message.
const fn tag(tag: u64, data: Option<u64>) -> FiTag {
    FiTag { tag, ignore: 0, data }
}

/// The queue of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// `fi_tagged(3)`.
    Tagged = 0,
    /// `fi_msg(3)`.
    Message = 1,
}

/// What an endpoint has beside its state, because both are used at once.
pub struct Shared<A: Adapter> {
    polled: RefCell<Polled<A>>,
    rail: host::Rail,
}

/// The port, and the completions of the last poll unless they are being handled.
struct Polled<A: Adapter> {
    port: Port<A>,
    batch: Option<Box<Batch>>,
    /// Used in place of `batch` if the process is recorded.
    watched: Option<Box<Batch>>,
}

/// An endpoint, for the thread that has entered it.
pub struct State<E: Environment> {
    messenger: messenger::State<State<E>>,
    /// Its operations.
    pub requests: Requests<E>,
    queues: [(Queues<Handle, Tagged>, Lengths); 2],
    peers: Peers<E::Vector>,
    buffers: Buffers<PieceOf<E>>,
    /// Messages that searches have claimed, each with what the search reported, by the context of the search.
    claimed: HashMap<usize, (MessageHandle, Completion, u64)>,
    /// Where the ends of operations are reported.
    pub reports: Reports<E::Queue, E::Counter>,
    /// The other operations of its port.
    pub others: E::Others,
    /// Reports that wait until the address of their source is looked up.
    late: VecDeque<Report>,
    /// The trace of the process, if there is one.
    recording: Option<E::Recorder>,
    /// Whether anything waits for the end of a call, or of a poll.
    pub has_more: bool,
    /// Whether sends, and receives by [`Kind`], without flags of their own are [plain](request::Call::is_plain), and
    /// the endpoint's defaults ask for nothing else.
    sends_plainly: bool,
    receives_plainly: [bool; 2],
    /// Whether nothing counts sends, and no tool sees them.
    injects_plainly: bool,
}

impl<A: Adapter> host::Process for Shared<A> {
    const TAG: u8 = 1;

    type Adapter = A;
    type Entered<'a>
        = RefMut<'a, Port<A>>
    where
        A: 'a;

    fn rail_count(&self) -> usize {
        1
    }

    fn rail(&self, rail: usize) -> Option<&host::Rail> {
        (rail == 0).then_some(&self.rail)
    }

    fn eager_limit(&self, _: Route) -> usize {
        self.rail.copy_size - MAX_TAGGED_SIZE
    }

    /// Only a thread that has entered the endpoint enters its port.
    #[inline(always)]
    fn enter_port(&self, rail: usize) -> Option<RefMut<'_, Port<A>>> {
        if rail != 0 {
            return None;
        }
        let polled = self.polled.try_borrow_mut().ok()?;
        Some(RefMut::map(polled, |polled| &mut polled.port))
    }
}

impl<A: Adapter> Shared<A> {
    /// Closes the port: after that no adapter touches memory of this process for it.
    pub fn close(&mut self) {
        self.polled.get_mut().port.close();
    }

    /// Takes over an open port, with its properties.
    pub fn new(port: Port<A>, rail: host::Rail) -> Self {
        Shared { polled: RefCell::new(Polled { port, batch: Some(Box::default()), watched: None }), rail }
    }
}

/// What an endpoint has from the beginning.
pub struct Setup<E: Environment> {
    /// The peers to whom it speaks.
    pub vector: Arc<E::Vector>,
    /// Its own name.
    pub me: PeerName,
    /// Where it reports.
    pub reports: Reports<E::Queue, E::Counter>,
    /// Default flags of its sends and of its receives.
    pub flags: [u64; 2],
    /// The other operations of its port.
    pub others: E::Others,
    /// The trace of the process, if there is one.
    pub recording: Option<E::Recorder>,
    /// Bytes of unexpected messages beyond which senders are held back.
    pub unexpected_memory: u64,
    /// Most unanswered announcements to a peer in a queue.
    pub window: u32,
    /// Most send buffers of each size.
    pub buffers: u32,
}

impl<E: Environment> State<E> {
    /// Makes the state of an endpoint without operations.
    ///
    /// # Panics
    /// Never: the table of queues is empty.
    pub fn new(shared: &Shared<E::Adapter>, setup: Setup<E>) -> Self {
        let Setup { vector, me, reports, flags, others, recording, .. } = setup;
        let counters = shared.polled.borrow().port.counters();
        let flow = Flow::new(setup.unexpected_memory, setup.window, counters);
        let rails = Rails::new(std::iter::once(&shared.rail), setup.buffers);
        let mut messenger = messenger::State::new(flow, rails);
        for kind in [Kind::Tagged, Kind::Message] {
            messenger.contexts.add(kind as u32, kind).expect("the table is empty");
        }
        let mut queues = <[(Queues<_, _>, Lengths); 2]>::default();
        for (queues, lengths) in &mut queues {
            queues.set_raises_events(lengths, recording.is_some());
        }
        if recording.is_some() {
            let polled = &mut *shared.polled.borrow_mut();
            polled.watched = polled.batch.take();
        }
        let mut state = State {
            messenger,
            requests: Requests::default(),
            queues,
            peers: Peers::new(vector, me),
            buffers: Buffers::default(),
            claimed: HashMap::new(),
            reports: Reports::default(),
            others,
            late: VecDeque::new(),
            has_more: recording.is_some(),
            sends_plainly: false,
            receives_plainly: [false; 2],
            injects_plainly: false,
            recording,
        };
        state.report_to(reports, flags);
        state
    }

    /// Reports what ends from now on to these queues and counters. `flags`: the endpoint's default flags.
    pub fn report_to(&mut self, reports: Reports<E::Queue, E::Counter>, flags: [u64; 2]) {
        let plain = |direction, flags| reports.call(direction, flags, Kind::Message, 0).is_plain();
        let plain_flags = flags[0] & (fi::FI_INJECT | DELIVERED) == 0;
        self.sends_plainly = plain(fi::FI_SEND, flags[0]) && plain_flags && self.recording.is_none();
        let receives = plain(fi::FI_RECV, flags[1]);
        // Buffers for several messages are for untagged ones.
        self.receives_plainly = [receives, receives && flags[1] & fi::FI_MULTI_RECV == 0];
        let is_counted = reports.call(fi::FI_SEND, 0, Kind::Message, 0).hears == Hears::All;
        self.injects_plainly = !is_counted && self.recording.is_none();
        self.reports = reports;
    }
}

impl<E: Environment> State<E> {
    /// Returns what is not as it was before the first message, once all operations have ended and each message is
    /// received: `None` if all is given back. `is_whole`: no peer is lost, else messages of lost peers may be kept. For
    /// tests.
    pub fn left(&self, is_whole: bool) -> Option<String> {
        let messenger::State { flow, transfers, starved, rails, .. } = &self.messenger;
        let in_queues = self.queues.iter().map(|(of, _)| of.posted() + of.unexpected()).sum::<u32>();
        let buffers: u32 = rails.buffers.iter().map(|of| of.in_use() as u32).sum();
        let limits = u32::from(!flow.outgoing.is_free() || !flow.turns.is_empty());
        let counts = [
            (self.requests.active().count() as u32, "requests"),
            (transfers.in_use() as u32, "transfers"),
            (starved.len() as u32, "sends that wait for a buffer"),
            (buffers, "send buffers"),
            (self.claimed.len() as u32, "claimed messages"),
            (self.late.len() as u32, "late reports"),
            (if is_whole { in_queues } else { 0 }, "entries of queues"),
            (if is_whole { flow.kept.bytes() as u32 } else { 0 }, "bytes of unexpected messages"),
            (if is_whole { limits } else { 0 }, "limits of flow control"),
        ];
        counts.iter().find(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"))
    }

    #[inline(never)]
    fn finish_otherwise(
        &mut self,
        receive: Handle,
        (source, tag): (u64, u64),
        data: Option<u64>,
        (length, is_truncated): (usize, bool),
    ) {
        self.note(receive, &Outcome { source, tag: self::tag(tag, data), length, is_truncated });
        self.finish(receive);
    }
}

impl Kind {
    /// Flags of the completions of receives.
    const fn received(self) -> u64 {
        fi::FI_RECV | self.flag()
    }

    /// Flags of the completions of sends.
    const fn sent(self) -> u64 {
        fi::FI_SEND | self.flag()
    }

    const fn flag(self) -> u64 {
        match self {
            Kind::Tagged => fi::FI_TAGGED,
            Kind::Message => fi::FI_MSG,
        }
    }
}

impl<E: Environment> Types for State<E> {
    type Handle = Handle;
    type Process = Shared<E::Adapter>;
    type Registration = RegisteredOf<E>;
    type Envelope = Tagged;
}

impl<E: Environment> Communicators for State<E> {
    type Communicator = Kind;

    fn communicator(&mut self, request: Handle) -> Kind {
        self.requests.get(request).call.kind
    }

    fn number(&mut self, of: Kind) -> u32 {
        of as u32
    }

    fn rank(&mut self, _: Kind) -> u64 {
        peers::OURSELVES
    }

    fn context(&mut self, request: Handle) -> u32 {
        self.requests.get(request).call.kind as u32
    }

    fn is_abandoned(&mut self, _: Handle) -> bool {
        false
    }

    fn known_route(&mut self, _: Kind, _: u64) -> Option<Route> {
        None
    }

    fn skips_flow_control(&mut self, _: &Shared<E::Adapter>, send: Handle) -> bool {
        let Request { core, call, .. } = self.requests.get(send);
        self.peers.skips(core.route, call.kind)
    }

    fn set_skips_flow_control(&mut self, _: &Shared<E::Adapter>, send: Handle, skips: bool) {
        let Request { core, call, .. } = self.requests.get(send);
        self.peers.set_skips(core.route, call.kind, skips);
    }

    fn mark(&mut self, routes: &[Route]) {
        self.peers.mark(routes);
    }

    #[inline(always)]
    fn queues(&mut self, of: Kind) -> (&mut Queues<Handle, Tagged>, &Lengths) {
        let (queues, lengths) = &mut self.queues[of as usize];
        (queues, lengths)
    }
}

impl<E: Environment> Host for State<E> {
    type Data = E::Data;

    #[inline(always)]
    fn core(&mut self, request: Handle) -> &mut Core<E> {
        &mut self.requests.get(request).core
    }

    #[inline(always)]
    fn messenger(&mut self) -> &mut messenger::State<Self> {
        &mut self.messenger
    }

    #[inline(always)]
    fn take_whole(&mut self, receive: Handle, outcome: &Outcome, bytes: &[u8]) {
        self.core(receive).data.put(bytes);
        if self.reports_at_once(receive, outcome) {
            return self.requests.give_back(receive);
        }
        // One by one, so that the fast path does not store them in memory.
        let Outcome { source, tag: FiTag { tag, data, .. }, length, is_truncated } = *outcome;
        self.finish_otherwise(receive, (source, tag), data, (length, is_truncated));
    }

    fn note(&mut self, receive: Handle, outcome: &Outcome) {
        self.requests.get(receive).outcome = Some(*outcome);
        self.note_match(receive, outcome.length);
    }

    fn noted(&mut self, receive: Handle) -> ((u64, FiTag), usize) {
        let nothing = ((peers::OURSELVES, FiTag { tag: 0, ignore: 0, data: None }), 0);
        self.requests.get(receive).outcome.map_or(nothing, |of| ((of.source, of.tag), of.length))
    }

    fn copy(&mut self, send: Handle, receive: Handle) {
        let [send, receive] = self.requests.pair([send, receive]);
        receive.core.data.copy_of(&send.core.data);
    }

    /// There is no shared memory.
    fn copy_from_process(&mut self, _: &Shared<E::Adapter>, _: Handle, _: Route, _: (u64, u64)) -> bool {
        false
    }

    fn deregister(&mut self, _: &Shared<E::Adapter>, _: usize, registered: RegisteredOf<E>) {
        self.others.memory().give_back(registered);
    }

    /// Bytes can always be copied.
    fn cannot_unpack(&mut self, _: Handle) {}

    fn finish(&mut self, request: Handle) {
        self.raise_end(request);
        self.report(request);
        self.requests.give_back(request);
    }

    /// [`Self::leave`](State::leave) ends its operations.
    fn loses_peer(&mut self) {
        self.has_more = true;
    }

    #[cold]
    fn fail(&mut self, shared: &Shared<E::Adapter>, request: Handle, peer: Route) {
        self.raise_end(request);
        self.report_failed(shared, request, peer);
        self.requests.give_back(request);
    }

    /// Bytes can always be copied.
    fn cannot_pack(&mut self, _: usize) {}

    #[cold]
    fn cannot_send(&mut self, shared: &Shared<E::Adapter>, send: Handle, asked: u64) {
        let (route, length) = (self.core(send).route, host::Data::length(&self.core(send).data));
        if let Some(mut port) = shared.enter_port(0) {
            port.fail_for_protocol(route.to(), format!("the peer asks for {asked} bytes of a message of {length}"));
        }
    }
}
