// SPDX-License-Identifier: MIT OR Apache-2.0
//! The test host: a process with one communicator whose ports are queues. `ports` sends and reads, `tools` keeps the
//! events. Called by the tests of this folder. Grade: test. Threads: one.

mod ports;
mod tools;

use std::sync::Arc;

use super::*;
use crate::events::{TypeId, XferBegin};
use crate::messenger::State;
use crate::messenger::events::{Completed, Event, Watched};
use crate::messenger::flow_control::state::Flow;
use crate::messenger::host::{
    Communicators, Data, Exposed, Host, NotPacked, Ports, Posted, Process, Rail, Tools, Transmitted, Types,
};
use crate::messenger::matching::lengths::Lengths;
use crate::messenger::path_taken::{PathTaken, Reason};
use crate::messenger::rails::Rails;
use crate::messenger::receive::queues::Queues;
use crate::messenger::rendezvous::read::{ReadRail, ReadTarget};
use crate::messenger::rendezvous::single_copy;
use crate::messenger::request::Core;
use crate::transport::adapter::simulated;
use crate::transport::{EndpointId, Port};

/// A process with one communicator, in which an MPI process has rank 3. A handle is an index in `cores`.
pub(super) struct SmallHost<E: WireEnvelope = Envelope> {
    /// The name of the process in the communicator.
    me: E::Peer,
    pub(super) cores: Vec<Core<SmallHost<E>>>,
    pub(super) messenger: State<SmallHost<E>>,
    pub(super) queues: Queues<usize, E>,
    pub(super) lengths: Lengths,
    pub(super) noted: Vec<(usize, Outcome<E>)>,
    pub(super) finished: Vec<usize>,
    /// Messages to the other process, with their data.
    pub(super) sent: VecDeque<(Header<E>, Vec<u8>)>,
    /// Sends of the fragments in `sent`.
    pub(super) in_flight: VecDeque<usize>,
    pub(super) free_buffers: usize,
    /// Whether short messages skip flow control.
    pub(super) skips: bool,
    /// The answer that ended the job: the number of bytes that it asked for.
    pub(super) refused: Option<u64>,
    /// Registrations in use, by rail.
    pub(super) registered: Vec<usize>,
    /// Whether memory can be registered.
    pub(super) can_register: bool,
    /// Further registrations of a send's memory, with other rails.
    pub(super) others: Vec<(usize, ())>,
    /// The paths by which events say that messages go.
    pub(super) paths: Vec<PathTaken>,
    /// Reads in flight: the receive, the rail, the key, and the part.
    pub(super) reads: VecDeque<(usize, usize, u32, Part)>,
    /// The rail that refuses every read.
    pub(super) is_down: Option<usize>,
    /// Whether the kernel copies from another process; `None`: it cannot.
    pub(super) kernel_copies: Option<bool>,
    /// Most messages in `sent` for a message with its data to find room.
    pub(super) room: usize,
    /// Events: a message arrived (a), was stored (i), was taken out of its queue (r); the transfer of a request begins
    /// (B), continues (C), ends (E), with the offset and the number of bytes.
    pub(super) raised: Vec<(char, usize, (u64, u64))>,
    /// Whether tools listen, and to paths, too.
    pub(super) hears: Option<bool>,
    /// Number of the next request or message, for tools.
    pub(super) next_number: u64,
}

pub(super) const EAGER_LIMIT: usize = 64;

/// Context number of the communicator.
pub(super) const CONTEXT: u32 = 5;

/// Longest message inside a work request, header included.
pub(super) const INLINE: usize = 32;

/// Most bytes of a fragment.
pub(super) const FRAGMENT: usize = 8;

/// Bytes of a message that is announced.
pub(super) const LONG: usize = 100;

/// First number of a request or message, for tools.
pub(super) const NUMBER: u64 = 77;

/// Tag of a send whose communicator has gone.
pub(super) const ABANDONED: i32 = 9;

/// Most bytes of a read.
pub(super) const READ: u32 = 16;

impl SmallHost {
    pub(super) fn new() -> Self {
        // It keeps one unexpected message.
        SmallHost::limited(Limits { kept: RECORD, window: 2 }, usize::MAX)
    }

    pub(super) fn limited(limits: Limits, room: usize) -> Self {
        SmallHost::of(3, limits, room)
    }

    /// Makes a request with tag 7.
    pub(super) fn request(&mut self, role: Role, data: Vec<u8>) -> usize {
        self.request_to(role, (3, 7), data)
    }

    /// Makes a send that has announced its message. Returns it with its number.
    pub(super) fn announced(&mut self, data: Vec<u8>) -> (usize, TransferId) {
        let send = self.request(Role::Send(Mode::Standard), data);
        let sender = self.messenger.transfers.begin(send);
        self.cores[send].transfer =
            Transfer::Unanswered { sender, registered: Some(()), others: Vec::new(), counted: true };
        self.registered.push(self.cores[send].route.rail());
        (send, sender)
    }

    /// Begins a send of so many bytes, the first of which are this number.
    pub(super) fn send(&mut self, tag: i32, number: u32, length: usize) {
        let mut data = vec![0; length];
        data[..4].copy_from_slice(&number.to_le_bytes());
        let send = self.request(Role::Send(Mode::Standard), data);
        self.cores[send].tag = tag;
        send::begin(&(), self, send, ROUTE);
    }

    /// Begins a receive with this tag.
    pub(super) fn receive(&mut self, tag: i32) {
        let receive = self.request(Role::Receive, vec![0; LONG]);
        self.cores[receive].tag = tag;
        search::post(&(), self, receive, Pattern::new(3, tag));
    }

    /// Returns tag and number of the message that each finished receive has got, in the order of the receives.
    pub(super) fn got(&self) -> Vec<(i32, u32)> {
        let finished: HashSet<usize> = self.finished.iter().copied().collect();
        let receives =
            self.cores.iter().enumerate().filter(|(at, core)| core.role == Role::Receive && finished.contains(at));
        receives.map(|(_, core)| (core.tag, u32::from_le_bytes(*core.data.first_chunk().expect("a number")))).collect()
    }
}

impl<E: WireEnvelope> SmallHost<E> {
    /// Makes a process with this name.
    pub(super) fn of(me: E::Peer, Limits { kept, window }: Limits, room: usize) -> Self {
        let mut messenger = State::new(Flow::new(kept, window, Arc::default()), Rails::new([].iter(), 0));
        messenger.contexts.add(CONTEXT, ());
        SmallHost {
            me,
            cores: Vec::new(),
            messenger,
            queues: Queues::new(),
            lengths: Lengths::default(),
            noted: Vec::new(),
            finished: Vec::new(),
            sent: VecDeque::new(),
            in_flight: VecDeque::new(),
            free_buffers: 3,
            skips: true,
            refused: None,
            registered: Vec::new(),
            can_register: true,
            others: Vec::new(),
            paths: Vec::new(),
            reads: VecDeque::new(),
            is_down: None,
            kernel_copies: None,
            room,
            raised: Vec::new(),
            hears: Some(false),
            next_number: NUMBER,
        }
    }

    /// Makes a request with this peer and tag.
    pub(super) fn request_to(&mut self, role: Role, (peer, tag): (E::Peer, E::Tag), data: Vec<u8>) -> usize {
        let (posted, route, transfer, watched) = (0, Route::UNKNOWN, Transfer::None, Watched::NOTHING);
        self.cores.push(Core { role, peer, tag, data, posted, route, transfer, watched });
        self.cores.len() - 1
    }

    /// Completes the oldest read, if one is in flight. The key of the sender's memory is its message's number.
    pub(super) fn complete_read(&mut self) {
        let Some((receive, rail, key, part)) = self.reads.pop_front() else { return };
        if part.offset == 0 {
            self.cores[receive].data[..4].copy_from_slice(&key.to_le_bytes());
        }
        read::done(&(), self, receive, rail, Ok(()));
    }

    /// Completes all reads.
    pub(super) fn complete_reads(&mut self) {
        while !self.reads.is_empty() {
            self.complete_read();
        }
    }

    /// Handles a message of another process.
    pub(super) fn handle(&mut self, message: (Header<E>, Vec<u8>)) {
        self.handle_from(Some(ROUTE), message);
    }

    /// Handles a message that came by this route.
    pub(super) fn handle_from(&mut self, from: Option<Route>, (header, bytes): (Header<E>, Vec<u8>)) {
        receive::handle(&(), self, &[header.encode().as_slice(), &bytes].concat(), || from);
    }

    /// Handles the oldest message of another process.
    pub(super) fn receive_from(&mut self, other: &mut SmallHost<E>) {
        self.handle(other.sent.pop_front().expect("a message"));
    }

    /// Reports that the buffer with the oldest fragment was sent.
    pub(super) fn fragment_done(&mut self) {
        self.free_buffers += 1;
        let send = self.in_flight.pop_front().expect("a fragment");
        fragments::done(&(), self, send);
    }
}

impl Process for () {
    const TAG: u8 = 0;
    type Adapter = simulated::Adapter;
    type Entered<'a> = &'a mut Port<simulated::Adapter>;

    fn rail_count(&self) -> usize {
        0
    }
    fn rail(&self, _rail: usize) -> Option<&Rail> {
        const RAIL: Rail =
            Rail { port: 0, mbps: 0, max_inline: INLINE, copy_size: 0, receive_size: 0, read_limit: READ };
        Some(&RAIL)
    }
    fn eager_limit(&self, _route: Route) -> usize {
        EAGER_LIMIT
    }
    fn enter_port(&self, _rail: usize) -> Option<&mut Port<simulated::Adapter>> {
        None
    }
}

impl<E: WireEnvelope> Types for SmallHost<E> {
    type Handle = usize;
    type Process = ();
    type Registration = ();
    type Envelope = E;
}

impl<E: WireEnvelope> Communicators for SmallHost<E> {
    type Communicator = ();

    fn communicator(&mut self, _request: usize) {}
    fn number(&mut self, (): ()) -> u32 {
        CONTEXT
    }
    fn rank(&mut self, (): ()) -> E::Peer {
        self.me
    }
    fn context(&mut self, _request: usize) -> u32 {
        CONTEXT
    }
    fn is_abandoned(&mut self, send: usize) -> bool {
        E::shown(self.me, self.cores[send].tag).1 == ABANDONED
    }
    fn known_route(&mut self, (): (), _rank: E::Peer) -> Option<Route> {
        Some(ROUTE)
    }
    fn skips_flow_control(&mut self, (): &(), _send: usize) -> bool {
        self.skips
    }
    fn set_skips_flow_control(&mut self, (): &(), _send: usize, skips: bool) {
        self.skips = skips;
    }
    fn mark(&mut self, routes: &[Route]) {
        assert_eq!(routes, [ROUTE]);
        self.skips = false;
    }
    fn queues(&mut self, (): ()) -> (&mut Queues<usize, E>, &Lengths) {
        (&mut self.queues, &self.lengths)
    }
}

impl<E: WireEnvelope> Host for SmallHost<E> {
    type Data = Vec<u8>;

    fn core(&mut self, request: usize) -> &mut Core<Self> {
        &mut self.cores[request]
    }
    fn messenger(&mut self) -> &mut State<Self> {
        &mut self.messenger
    }
    fn note(&mut self, receive: usize, outcome: &Outcome<E>) {
        self.noted.push((receive, *outcome));
    }
    fn noted(&mut self, receive: usize) -> ((E::Peer, E::Tag), usize) {
        let of = self.noted.iter().find(|(noted, _)| *noted == receive);
        let core = &self.cores[receive];
        of.map_or(((core.peer, core.tag), 0), |(_, outcome)| ((outcome.source, outcome.tag), outcome.length))
    }
    fn copy(&mut self, send: usize, receive: usize) {
        let [from, to] = self.cores.get_disjoint_mut([send, receive]).expect("two requests").map(|core| &mut core.data);
        let length = from.len().min(to.len());
        to[..length].copy_from_slice(&from[..length]);
    }
    fn copy_from_process(&mut self, (): &(), receive: usize, _route: Route, _of: (u64, u64)) -> bool {
        self.kernel_copies.inspect(|is_copied| single_copy::done(&(), self, receive, *is_copied)).is_some()
    }
    fn deregister(&mut self, (): &(), rail: usize, (): ()) {
        let at = self.registered.iter().position(|registered| *registered == rail).expect("it is registered");
        self.registered.remove(at);
    }
    fn cannot_unpack(&mut self, _receive: usize) {
        panic!("all data can be unpacked");
    }
    fn finish(&mut self, request: usize) {
        self.finished.push(request);
    }
    fn loses_peer(&mut self) {
        panic!("no peer is lost");
    }
    fn fail(&mut self, (): &(), _request: usize, _peer: Route) {
        panic!("nothing fails");
    }
    fn cannot_pack(&mut self, _length: usize) {
        panic!("all data can be packed");
    }
    fn cannot_send(&mut self, (): &(), _send: usize, asked: u64) {
        self.refused = Some(asked);
    }
}

impl Data for Vec<u8> {
    fn length(&self) -> usize {
        self.len()
    }
    fn is_contiguous(&self) -> bool {
        true
    }
    fn put(&mut self, from: &[u8]) -> bool {
        let length = from.len().min(self.len());
        self[..length].copy_from_slice(&from[..length]);
        true
    }
    fn take_all(&mut self, to: &mut [u8]) -> bool {
        to.copy_from_slice(self);
        true
    }
    fn take_at(&mut self, offset: u64, to: &mut [u8]) -> usize {
        let rest = &self[offset as usize..];
        let length = rest.len().min(to.len());
        to[..length].copy_from_slice(&rest[..length]);
        length
    }
    fn put_at(&mut self, offset: u64, from: &[u8]) -> bool {
        self[offset as usize..][..from.len()].copy_from_slice(from);
        true
    }
    fn end(&mut self) {}
}

/// Route to the other process, which leads nowhere here.
pub(super) const ROUTE: Route = Route::UNKNOWN;

/// Returns the route to the other process by a rail.
pub(super) fn by_rail(rail: usize) -> Route {
    Route::new(rail, EndpointId::from_index(0))
}
