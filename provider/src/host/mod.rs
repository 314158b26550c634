// SPDX-License-Identifier: MIT OR Apache-2.0
//! An endpoint as the messenger's host: libfabric's messages over the messenger of the engine.
//!
//! [`State`] is what a thread uses once it has entered the endpoint; [`Shared`] has the port and what does not change.
//! `calls` has what a program calls, `multi_recv` the buffers for several messages, `progress` the poll, `request` and
//! `data` the operations, `lost` the ends of those whose peer is lost, `disconnect` the endpoint's own end, `memory`
//! and `peers` what the messenger asks about memory and peers, `tools` about tools. An endpoint has two queues of
//! receives, of tagged and of untagged messages ([`Kind`]), which the messenger knows as communicators.
//!
//! Called by `endpoint/`. Grade: hot. Threads: any that enters the endpoint, one at a time. Tests: in each file, and
//! `hw-tests`.

use std::cell::{RefCell, RefMut};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use ibex::messenger;
use ibex::messenger::events::{self, Event};
use ibex::messenger::flow_control::state::{Flow, WINDOW};
use ibex::messenger::header::MAX_TAGGED_SIZE;
use ibex::messenger::host::{self, Communicators, Data as _, Host, Process as _, Types};
use ibex::messenger::matching::lengths::Lengths;
use ibex::messenger::matching::{FiTag, MessageHandle, Tagged};
use ibex::messenger::rails::{Rails, send_buffers};
use ibex::messenger::receive::queues::Queues;
use ibex::messenger::route::Route;
use ibex::peer::PeerName;
use ibex::transport::adapter::verbs::Verbs;
use ibex::transport::{Batch, Port};
use ibex::tunables::Tunables;

pub(crate) mod calls;
pub(crate) mod data;
mod disconnect;
mod lost;
mod memory;
mod multi_recv;
mod peers;
mod progress;
pub(crate) mod request;
mod tools;

pub(crate) use peers::OURSELVES;

use crate::adapter::{self, RECEIVE_SIZE};
use crate::av::AddressVector;
use crate::cq::Completion;
use crate::domain::Domain;
use crate::endpoint::reports::Reports;
use crate::recording::{self, Recording};
use crate::registration::{Registered, Registrations};
use crate::rma::Rma;
use crate::sys;
use calls::Report;
use data::Data;
use multi_recv::Buffers;
use peers::Peers;
use request::{Core, Handle, Hears, Outcome, Request, Requests};

/// A tag, and the remote CQ data of a message.
const fn tag(tag: u64, data: Option<u64>) -> FiTag {
    FiTag { tag, ignore: 0, data }
}

/// The queue of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// `fi_tagged(3)`.
    Tagged = 0,
    /// `fi_msg(3)`.
    Message = 1,
}

/// What an endpoint has beside its state, because both are used at once.
pub(crate) struct Shared {
    polled: RefCell<Polled>,
    rail: host::Rail,
}

/// The port, and the completions of the last poll unless they are being handled.
struct Polled {
    port: Port<Verbs>,
    batch: Option<Box<Batch>>,
}

/// An endpoint, for the thread that has entered it.
pub(crate) struct State {
    messenger: messenger::State<State>,
    pub(crate) requests: Requests,
    queues: [(Queues<Handle, Tagged>, Lengths); 2],
    peers: Peers,
    buffers: Buffers,
    /// Messages that searches have claimed, each with what the search reported, by the context of the search.
    claimed: HashMap<usize, (MessageHandle, Completion, u64)>,
    /// Where the ends of operations are reported.
    pub(crate) reports: Reports,
    /// Its one-sided operations.
    pub(crate) rma: Rma,
    /// Reports that wait until the address of their source is looked up.
    late: VecDeque<Report>,
    /// The trace of the process, if there is one.
    recording: Option<&'static Recording>,
    /// Whether anything waits for the end of a call, or of a poll.
    pub(crate) has_more: bool,
    /// Whether sends, and receives by [`Kind`], without flags of their own are [plain](request::Call::is_plain), and
    /// the endpoint's defaults ask for nothing else.
    sends_plainly: bool,
    receives_plainly: [bool; 2],
    /// Whether nothing counts sends, and no tool sees them.
    injects_plainly: bool,
}

impl host::Process for Shared {
    const TAG: u8 = 1;

    type Adapter = Verbs;
    type Entered<'a> = RefMut<'a, Port<Verbs>>;

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
    fn enter_port(&self, rail: usize) -> Option<RefMut<'_, Port<Verbs>>> {
        if rail != 0 {
            return None;
        }
        let polled = self.polled.try_borrow_mut().ok()?;
        Some(RefMut::map(polled, |polled| &mut polled.port))
    }
}

impl Shared {
    /// Closes the port: after that no adapter touches memory of this process for it.
    pub(crate) fn close(&mut self) {
        self.polled.get_mut().port.close();
    }

    /// Takes over an open port.
    pub(crate) fn new(port: Port<Verbs>) -> Self {
        let tunables = Tunables::default();
        let sizes = ((tunables.eager_limit as usize).min(RECEIVE_SIZE as usize), RECEIVE_SIZE as usize);
        let rail = host::Rail::new(0, port.attributes(), sizes, tunables.read_size as u32);
        Shared { polled: RefCell::new(Polled { port, batch: Some(Box::default()) }), rail }
    }
}

impl State {
    /// Makes the state of an endpoint without operations, which is named `me` and speaks to the peers in `vector`.
    pub(crate) fn new(
        shared: &Shared,
        (domain, vector): (Arc<Domain>, Arc<AddressVector>),
        me: PeerName,
        (reports, flags): (Reports, [u64; 2]),
    ) -> Self {
        let tunables = Tunables::default();
        let (counters, registrations) = {
            let port = &shared.polled.borrow().port;
            (port.counters(), Registrations::new(port.domain(), adapter::processes() as usize))
        };
        let flow = Flow::new(tunables.unexpected_memory, WINDOW, counters);
        let rails = Rails::new(std::iter::once(&shared.rail), send_buffers::MOST);
        let mut messenger = messenger::State::new(flow, rails);
        for kind in [Kind::Tagged, Kind::Message] {
            messenger.contexts.add(kind as u32, kind).expect("the table is empty");
        }
        let (recording, mut queues) = (recording::recording(), <[(Queues<_, _>, Lengths); 2]>::default());
        for (queues, lengths) in &mut queues {
            queues.set_raises_events(lengths, recording.is_some());
        }
        let mut state = State {
            messenger,
            requests: Requests::default(),
            queues,
            peers: Peers::new(vector, me),
            buffers: Buffers::default(),
            claimed: HashMap::new(),
            reports: Reports::default(),
            rma: Rma::new(domain, registrations),
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
    pub(crate) fn report_to(&mut self, reports: Reports, flags: [u64; 2]) {
        let plain = |direction, flags| reports.call(direction, flags, Kind::Message, 0).is_plain();
        let plain_flags = flags[0] & (sys::FI_INJECT | calls::DELIVERED) == 0;
        self.sends_plainly = plain(sys::FI_SEND, flags[0]) && plain_flags && self.recording.is_none();
        let receives = plain(sys::FI_RECV, flags[1]);
        // Buffers for several messages are for untagged ones.
        self.receives_plainly = [receives, receives && flags[1] & sys::FI_MULTI_RECV == 0];
        let is_counted = reports.call(sys::FI_SEND, 0, Kind::Message, 0).hears == Hears::All;
        self.injects_plainly = !is_counted && self.recording.is_none();
        self.reports = reports;
    }
}

impl State {
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
        sys::FI_RECV | self.flag()
    }

    /// Flags of the completions of sends.
    const fn sent(self) -> u64 {
        sys::FI_SEND | self.flag()
    }

    const fn flag(self) -> u64 {
        match self {
            Kind::Tagged => sys::FI_TAGGED,
            Kind::Message => sys::FI_MSG,
        }
    }
}

impl Types for State {
    type Handle = Handle;
    type Process = Shared;
    type Registration = Registered;
    type Envelope = Tagged;
}

impl Communicators for State {
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

    fn skips_flow_control(&mut self, _: &Shared, send: Handle) -> bool {
        let Request { core, call, .. } = self.requests.get(send);
        self.peers.skips(core.route, call.kind)
    }

    fn set_skips_flow_control(&mut self, _: &Shared, send: Handle, skips: bool) {
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

impl Host for State {
    type Data = Data;

    #[inline(always)]
    fn core(&mut self, request: Handle) -> &mut Core {
        &mut self.requests.get(request).core
    }

    #[inline(always)]
    fn messenger(&mut self) -> &mut messenger::State<State> {
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
    fn copy_from_process(&mut self, _: &Shared, _: Handle, _: Route, _: (u64, u64)) -> bool {
        false
    }

    fn deregister(&mut self, _: &Shared, _: usize, registered: Registered) {
        self.rma.registrations.give_back(registered);
    }

    /// Bytes can always be copied.
    fn cannot_unpack(&mut self, _: Handle) {}

    fn finish(&mut self, request: Handle) {
        events::raise(self, request, Event::Complete);
        self.report(request);
        self.requests.give_back(request);
    }

    /// [`Self::leave`](State::leave) ends its operations.
    fn loses_peer(&mut self) {
        self.has_more = true;
    }

    #[cold]
    fn fail(&mut self, shared: &Shared, request: Handle, peer: Route) {
        events::raise(self, request, Event::Complete);
        self.report_failed(shared, request, peer);
        self.requests.give_back(request);
    }

    /// Bytes can always be copied.
    fn cannot_pack(&mut self, _: usize) {}

    #[cold]
    fn cannot_send(&mut self, shared: &Shared, send: Handle, asked: u64) {
        let (route, length) = (self.core(send).route, host::Data::length(&self.core(send).data));
        if let Some(mut port) = shared.enter_port(0) {
            port.fail_for_protocol(route.to(), format!("the peer asks for {asked} bytes of a message of {length}"));
        }
    }
}
