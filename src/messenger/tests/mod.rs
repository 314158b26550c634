// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocols, with a host whose ports are queues; `rendezvous_steps` shows one step by step, `searches` has the
//! messages that arrive and their receives, `answers` the answers of others, `histories` all in any order.

mod answers;
mod histories;
mod rendezvous_steps;
mod searches;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use super::State;
use super::events::{Completed, Event, Watched};
use super::flow_control::state::{Flow, RECORD};
use super::flow_control::{Limits, Word};
use super::header::{Header, Match, Memory, PortKey};
use super::host::{
    Communicators, Data, Exposed, Host, NotPacked, Ports, Posted, Process, Rail, Tools, Transmitted, Types,
};
use super::loopback;
use super::matching::lengths::Lengths;
use super::matching::{Envelope, Pattern};
use super::path_taken::{PathTaken, Reason};
use super::rails::Rails;
use super::receive;
use super::receive::arrived::{Arrived, Body};
use super::receive::delivery;
use super::receive::queues::Queues;
use super::receive::search::{self, Posting};
use super::rendezvous::read::{self, ReadRail, ReadTarget};
use super::rendezvous::stripes::{self, Part};
use super::rendezvous::{self, fragments, single_copy};
use super::request::transfer_id::TransferId;
use super::request::{Core, Mode, Outcome, Role, Transfer};
use super::route::{Account, Route};
use super::send;
use crate::events::{TypeId, XferBegin};
use crate::transport::adapter::simulated;
use crate::transport::{EndpointId, Failed, Port};
use ibex_ffi::verbs::Status;

/// A process with one communicator, in which it has rank 3. A handle is an index in `cores`.
struct SmallHost {
    cores: Vec<Core<SmallHost>>,
    messenger: State<SmallHost>,
    queues: Queues<usize>,
    lengths: Lengths,
    noted: Vec<(usize, Outcome)>,
    finished: Vec<usize>,
    /// Messages to the other process, with their data.
    sent: VecDeque<(Header, Vec<u8>)>,
    /// Sends of the fragments in `sent`.
    in_flight: VecDeque<usize>,
    free_buffers: usize,
    /// Whether short messages skip flow control.
    skips: bool,
    /// The answer that ended the job: the number of bytes that it asked for.
    refused: Option<u64>,
    /// Registrations in use, by rail.
    registered: Vec<usize>,
    /// Whether memory can be registered.
    can_register: bool,
    /// Further registrations of a send's memory, with other rails.
    others: Vec<(usize, ())>,
    /// Numbers of rails by which tools were told that messages go.
    rails: Vec<u32>,
    /// Reads in flight: the receive, the rail, the key, and the part.
    reads: VecDeque<(usize, usize, u32, Part)>,
    /// The rail that refuses every read.
    is_down: Option<usize>,
    /// Whether the kernel copies from another process; `None`: it cannot.
    kernel_copies: Option<bool>,
    /// Most messages in `sent` for a message with its data to find room.
    room: usize,
    /// Events: a message arrived (a), was stored (i), was taken out of its queue (r); the transfer of a request begins
    /// (B), continues (C), ends (E), with the offset and the number of bytes.
    told: Vec<(char, usize, (u64, u64))>,
    /// Whether tools are told, and of paths, too.
    hears: Option<bool>,
    /// Number of the next request or message, for tools.
    next_number: u64,
}

const EAGER_LIMIT: usize = 64;

/// Context number of the communicator.
const CONTEXT: u32 = 5;

/// Most bytes of a fragment.
const FRAGMENT: usize = 8;

/// Bytes of a message that is announced.
const LONG: usize = 100;

/// First number of a request or message, for tools.
const NUMBER: u64 = 77;

/// Tag of a send whose communicator has gone.
const ABANDONED: i32 = 9;

/// Most bytes of a read.
const READ: u32 = 16;

impl SmallHost {
    fn new() -> Self {
        // It keeps one unexpected message.
        SmallHost::limited(Limits { kept: RECORD, window: 2 }, usize::MAX)
    }

    fn limited(Limits { kept, window }: Limits, room: usize) -> Self {
        let mut messenger = State::new(Flow::new(kept, window, Arc::default()), Rails::new([].iter(), 0));
        messenger.contexts.add(CONTEXT, ());
        SmallHost {
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
            rails: Vec::new(),
            reads: VecDeque::new(),
            is_down: None,
            kernel_copies: None,
            room,
            told: Vec::new(),
            hears: Some(false),
            next_number: NUMBER,
        }
    }

    /// Makes a request with tag 7.
    fn request(&mut self, role: Role, data: Vec<u8>) -> usize {
        let (posted, route, transfer, watched) = (0, Route::UNKNOWN, Transfer::None, Watched::NOTHING);
        self.cores.push(Core { role, peer: 3, tag: 7, data, posted, route, transfer, watched });
        self.cores.len() - 1
    }

    /// Makes a send that has announced its message. Returns it with its number.
    fn announced(&mut self, data: Vec<u8>) -> (usize, TransferId) {
        let send = self.request(Role::Send(Mode::Standard), data);
        self.cores[send].transfer = Transfer::Unanswered { registered: Some(()), others: Vec::new(), counted: true };
        self.registered.push(self.cores[send].route.rail());
        (send, self.messenger.transfers.begin(send))
    }

    /// Begins a send of so many bytes, the first of which are this number.
    fn send(&mut self, tag: i32, number: u32, length: usize) {
        let mut data = vec![0; length];
        data[..4].copy_from_slice(&number.to_le_bytes());
        let send = self.request(Role::Send(Mode::Standard), data);
        self.cores[send].tag = tag;
        send::begin(&(), self, send, ROUTE);
    }

    /// Begins a receive with this tag.
    fn receive(&mut self, tag: i32) {
        let receive = self.request(Role::Receive, vec![0; LONG]);
        self.cores[receive].tag = tag;
        search::post(&(), self, receive, Pattern::new(3, tag));
    }

    /// Returns tag and number of the message that each finished receive has got, in the order of the receives.
    fn got(&self) -> Vec<(i32, u32)> {
        let finished: HashSet<usize> = self.finished.iter().copied().collect();
        let receives =
            self.cores.iter().enumerate().filter(|(at, core)| core.role == Role::Receive && finished.contains(at));
        receives.map(|(_, core)| (core.tag, u32::from_le_bytes(*core.data.first_chunk().expect("a number")))).collect()
    }

    /// Completes the oldest read, if one is in flight. The key of the sender's memory is its message's number.
    fn complete_read(&mut self) {
        let Some((receive, rail, key, part)) = self.reads.pop_front() else { return };
        if part.offset == 0 {
            self.cores[receive].data[..4].copy_from_slice(&key.to_le_bytes());
        }
        read::done(&(), self, receive, rail, Ok(()));
    }

    /// Handles a message of another process.
    fn handle(&mut self, message: (Header, Vec<u8>)) {
        self.handle_from(Some(ROUTE), message);
    }

    /// Handles a message that came by this route.
    fn handle_from(&mut self, from: Option<Route>, (header, bytes): (Header, Vec<u8>)) {
        receive::handle(&(), self, &[header.encode().as_slice(), &bytes].concat(), || from);
    }

    /// Handles the oldest message of another process.
    fn receive_from(&mut self, other: &mut SmallHost) {
        self.handle(other.sent.pop_front().expect("a message"));
    }

    /// Reports that the buffer with the oldest fragment was sent.
    fn fragment_done(&mut self) {
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
        const RAIL: Rail = Rail { port: 0, mbps: 0, max_inline: 0, copy_size: 0, receive_size: 0, read_limit: READ };
        Some(&RAIL)
    }
    fn eager_limit(&self, _route: Route) -> usize {
        EAGER_LIMIT
    }
    fn enter_port(&self, _rail: usize) -> Option<&mut Port<simulated::Adapter>> {
        None
    }
}

impl Types for SmallHost {
    type Handle = usize;
    type Process = ();
    type Registration = ();
}

impl Ports for SmallHost {
    type Fragment = (Header, Vec<u8>);

    fn home(&mut self, (): &(), route: Route) -> Route {
        route
    }
    fn account(&mut self, (): &(), route: Route) -> Account {
        // Endpoints of one number lead to one process.
        Account(if route.rail() < 4 { Route::new(0, route.to()) } else { route })
    }
    fn routes_of(&mut self, (): &(), Account(route): Account) -> Vec<Route> {
        vec![route]
    }
    fn has_room(&mut self, (): &(), _route: Route) -> bool {
        self.sent.len() < self.room
    }
    fn queue_turn(&mut self, (): &(), _route: Route) {}
    fn begin_turn(&mut self, (): &(), _route: Route) {}
    fn end_turn(&mut self, (): &(), _route: Route) {}
    fn send_whole(&mut self, (): &(), send: usize, header: &Header, _finishes: bool) -> Transmitted {
        if self.sent.len() >= self.room {
            return Transmitted::NoRoom;
        }
        self.sent.push_back((*header, self.cores[send].data.clone()));
        Transmitted::Posted
    }
    fn control(&mut self, (): &(), _route: Route, header: &Header) {
        self.sent.push_back((*header, Vec::new()));
    }
    fn control_with_keys(&mut self, (): &(), _route: Route, header: &Header, keys: &[PortKey]) {
        self.sent.push_back((*header, PortKey::encode(keys)));
    }
    fn pack_fragment(
        &mut self,
        (): &(),
        send: usize,
        receiver: TransferId,
        offset: u64,
    ) -> Result<((Header, Vec<u8>), u64), NotPacked> {
        self.free_buffers = self.free_buffers.checked_sub(1).ok_or(NotPacked::NoBuffer)?;
        let rest = &self.cores[send].data[offset as usize..];
        let bytes = &rest[..rest.len().min(FRAGMENT)];
        Ok(((Header::Fragment { receive: receiver.0, offset }, bytes.into()), bytes.len() as u64))
    }
    fn post_fragment(&mut self, (): &(), send: usize, fragment: (Header, Vec<u8>)) -> Posted {
        self.sent.push_back(fragment);
        self.in_flight.push_back(send);
        Posted::InFlight
    }
    fn has_free_buffer(&mut self) -> bool {
        self.free_buffers > 0
    }
    fn expose(&mut self, (): &(), send: usize) -> Result<Exposed<()>, Reason> {
        let Core { ref data, route, .. } = self.cores[send];
        if !self.can_register {
            return Err(Reason::NotRegistered);
        }
        self.registered.push(route.rail());
        let key = u32::from_le_bytes(*data.first_chunk().expect("a number"));
        Ok(Exposed { address: 4096, key, registered: Some(()), others: self.others.clone(), ..Exposed::default() })
    }
    fn readable_by(&mut self, (): &(), _from: Route, keys: &[PortKey], _wanted: u64) -> Vec<(Route, u32)> {
        keys.iter().map(|key| (by_rail(key.port as usize), key.key)).collect()
    }
    fn register(&mut self, (): &(), _receive: usize, route: Route, _wanted: u64) -> Option<ReadTarget<()>> {
        if !self.can_register {
            return None;
        }
        self.registered.push(route.rail());
        Some(ReadTarget { registered: (), mbps: 100, longest: READ })
    }
    fn post_read(&mut self, (): &(), receive: usize, by: &ReadRail<()>, part: Part) -> bool {
        let is_up = self.is_down != Some(by.route.rail());
        if is_up {
            self.reads.push_back((receive, by.route.rail(), by.key, part));
        }
        is_up
    }
    fn fails_over(&mut self, (): &(), route: Route) -> bool {
        self.is_down = Some(route.rail());
        true
    }
}

impl Communicators for SmallHost {
    type Communicator = ();

    fn communicator(&mut self, _request: usize) {}
    fn number(&mut self, (): ()) -> u32 {
        CONTEXT
    }
    fn rank(&mut self, (): ()) -> i32 {
        3
    }
    fn context(&mut self, _request: usize) -> u32 {
        CONTEXT
    }
    fn is_abandoned(&mut self, send: usize) -> bool {
        self.cores[send].tag == ABANDONED
    }
    fn known_route(&mut self, (): (), _rank: i32) -> Option<Route> {
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
    fn queues(&mut self, (): ()) -> (&mut Queues<usize>, &Lengths) {
        (&mut self.queues, &self.lengths)
    }
}

impl Tools for SmallHost {
    /// Whether they hear of paths.
    type Listeners = bool;
    type Spec = ();

    fn listeners(&mut self, (): ()) -> Option<bool> {
        self.hears
    }
    fn listeners_of(&mut self, _request: usize) -> Option<bool> {
        self.hears
    }
    fn hear(hears_paths: bool, event: Event) -> bool {
        hears_paths || event != Event::Protocol
    }
    fn numbers(&mut self, count: u64) -> u64 {
        self.next_number += 2 * count;
        self.next_number - 2 * count
    }
    fn spec(&mut self, (): (), _wanted: (i32, i32), _length: usize) {}
    fn of_spec((): &()) -> ((i32, i32), usize) {
        ((0, 0), 0)
    }
    fn tell(&mut self, _: bool, event: Event, _id: u64, request: usize) {
        let step = match event {
            Event::XferBegin => 'B',
            Event::XferContinue => 'C',
            Event::XferEnd => 'E',
            Event::InsertPosted => 'P',
            Event::SearchUnexpectedBegin => '(',
            Event::SearchUnexpectedEnd => ')',
            _ => return,
        };
        self.told.push((step, request, (0, 0)));
    }
    fn tell_of_message(&mut self, _: bool, event: Event, id: u64, (): &mut ()) {
        let step = match event {
            Event::Arrived => 'a',
            Event::InsertUnexpected => 'i',
            Event::RemoveUnexpected => 'r',
            _ => return,
        };
        self.told.push((step, id as usize, (0, 0)));
    }
    fn tell_path(&mut self, _: bool, _request: usize, _message: (u64, usize), path: PathTaken) {
        self.rails.push(path.rails);
    }
    fn rank_in_job(&mut self, (): (), rank: i32) -> u32 {
        rank as u32
    }
    fn wants_step(&mut self, _step: TypeId) -> bool {
        true
    }
    fn step(&mut self, _step: TypeId, told: XferBegin, _by: Option<Completed>) {
        self.told.last_mut().expect("its request's event comes first").2 = (told.offset, told.bytes);
    }
}

impl Host for SmallHost {
    type Data = Vec<u8>;

    fn core(&mut self, request: usize) -> &mut Core<Self> {
        &mut self.cores[request]
    }
    fn messenger(&mut self) -> &mut State<Self> {
        &mut self.messenger
    }
    fn note(&mut self, receive: usize, outcome: &Outcome) {
        self.noted.push((receive, *outcome));
    }
    fn noted(&mut self, receive: usize) -> ((i32, i32), usize) {
        let of = self.noted.iter().find(|(noted, _)| *noted == receive);
        of.map_or(((0, 0), 0), |(_, outcome)| ((outcome.source, outcome.tag), outcome.length))
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
    fn fails(&mut self) {
        panic!("nothing fails");
    }
    fn cannot_pack(&mut self, _length: usize) {
        panic!("all data can be packed");
    }
    fn cannot_send(&mut self, asked: u64, _length: u64) {
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
const ROUTE: Route = Route::UNKNOWN;

/// Returns the route to the other process by a rail.
fn by_rail(rail: usize) -> Route {
    Route::new(rail, EndpointId::from_index(0))
}

/// Returns the events of a copy of `bytes` bytes from a send to its receive.
fn copy_of(bytes: u64, send: usize, receive: usize) -> [(char, usize, (u64, u64)); 4] {
    let [begun, ended] = [(0, bytes), (bytes, 0)];
    [('B', send, begun), ('B', receive, begun), ('E', send, ended), ('E', receive, ended)]
}

#[test]
fn a_process_copies_a_message_to_itself_as_far_as_the_posted_receive_has_room() {
    for room in [12, 10, 4] {
        let mut host = SmallHost::new();
        let send = host.request(Role::Send(Mode::Standard), (0..10).collect());
        let receive = host.request(Role::Receive, vec![99; room]);
        host.queues.post(&host.lengths, Pattern::new(3, 7), receive);
        loopback::send(&(), &mut host, send);
        let outcome = Outcome { source: 3, tag: 7, length: 10, is_truncated: room < 10 };
        assert_eq!((host.noted, host.finished), (vec![(receive, outcome)], vec![send, receive]));
        let expected: Vec<u8> = (0..10).chain([99; 2]).take(room).collect();
        assert_eq!(host.cores[receive].data, expected);
        assert_eq!((host.told[0].0, &host.told[1..]), ('a', &copy_of(room.min(10) as u64, send, receive)[..]));
    }
}

#[test]
fn a_process_stores_a_copy_of_a_message_to_itself_if_its_sender_may_go_on() {
    for (mode, length, is_copied) in
        [(Mode::Standard, 40, true), (Mode::Standard, EAGER_LIMIT + 1, false), (Mode::Synchronous, 10, false)]
    {
        let mut host = SmallHost::new();
        let send = host.request(Role::Send(mode), vec![5; length]);
        loopback::send(&(), &mut host, send);
        assert_eq!(host.finished, vec![send; usize::from(is_copied)]);
        let kept = host.queues.take_unexpected(&host.lengths, Pattern::new(3, 7)).expect("it is stored");
        assert_eq!(kept.message.length(), length);
        let letters: String = host.told.drain(..).map(|(letter, ..)| letter).collect();
        assert_eq!(letters, if is_copied { "aBiE" } else { "ai" });
        let Body::ReadyToSend(sender, _) = kept.message.body else { continue };
        let receive = host.request(Role::Receive, vec![0; length]);
        for _ in 0..2 {
            loopback::receive(&mut host, receive, kept.envelope, sender);
            assert_eq!((&*host.finished, &host.cores[receive].data), (&[send, receive][..], &vec![5; length]));
            assert_eq!(host.told, copy_of(length as u64, send, receive));
        }
    }
}

#[test]
fn a_rendezvous_sends_as_many_fragments_as_find_a_buffer_and_the_next_when_one_is_sent() {
    let (mut sender, mut receiver) = (SmallHost::new(), SmallHost::new());
    let (send, number) = sender.announced((0..50).collect());
    let receive = receiver.request(Role::Receive, vec![0; 44]);
    fragments::ask(&(), &mut receiver, receive, (ROUTE, number), (44, Reason::Gaps));
    sender.receive_from(&mut receiver);
    let offsets = |of: &SmallHost| -> Vec<u64> {
        of.sent
            .iter()
            .map(|(header, _)| if let Header::Fragment { offset, .. } = header { *offset } else { 99 })
            .collect()
    };
    assert_eq!((offsets(&sender), &sender.messenger.starved), (vec![0, 8, 16], &VecDeque::from([send])));
    receiver.receive_from(&mut sender);
    assert_eq!(receiver.cores[receive].data[..9], [0, 1, 2, 3, 4, 5, 6, 7, 0]);
    sender.fragment_done();
    assert_eq!(offsets(&sender), [8, 16, 24]);
    for _ in 0..3 {
        receiver.receive_from(&mut sender);
        sender.fragment_done();
    }
    assert_eq!((offsets(&sender), sender.messenger.starved.len()), (vec![32, 40], 0));
    receiver.receive_from(&mut sender);
    receiver.receive_from(&mut sender);
    // The last fragment has four bytes for which the receive has no room.
    assert_eq!((&*receiver.finished, &receiver.cores[receive].data), (&[receive][..], &(0..44).collect::<Vec<_>>()));
    sender.fragment_done();
    assert!(sender.finished.is_empty(), "the adapter reads the last fragment");
    sender.fragment_done();
    assert_eq!((&*sender.finished, sender.free_buffers, sender.registered.len()), (&[send][..], 3, 0));
    for host in [sender, receiver] {
        assert_eq!(host.told.iter().map(|(letter, ..)| letter).collect::<String>(), "BCCCCE");
    }
}

/// Makes two processes, a send of so many bytes, and a receive with `room` that gets its announcement by this route.
fn rendezvous_by(
    from: Route,
    (length, room): (usize, usize),
    keys: Option<&[PortKey]>,
    kernel_copies: Option<bool>,
) -> (SmallHost, SmallHost) {
    let (mut sender, mut receiver) = (SmallHost::new(), SmallHost::new());
    receiver.kernel_copies = kernel_copies;
    let (_, number) = sender.announced(vec![7; length]);
    let receive = receiver.request(Role::Receive, vec![0; room]);
    let memory = Memory { key: 9, address: 4096, length: length as u64 };
    let body = match keys {
        Some(keys) => Body::ReadyToSendKeyed(number, memory, keys.into()),
        None => Body::ReadyToSend(number, memory),
    };
    delivery::arrived(&(), &mut receiver, receive, Envelope::new(3, 7), Arrived { from, id: 0, body });
    (sender, receiver)
}

/// Hands all messages over, and expects that both requests are finished and no memory is registered any more.
fn is_finished_by_messages(mut sender: SmallHost, mut receiver: SmallHost) {
    while !(receiver.sent.is_empty() && sender.sent.is_empty()) {
        receiver.sent.drain(..).for_each(|message| sender.handle(message));
        if let Some(fragment) = sender.sent.pop_front() {
            receiver.handle_from(Some(receiver.cores[0].route), fragment);
            sender.fragment_done();
        }
    }
    for host in [sender, receiver] {
        assert_eq!((host.finished, host.registered, host.noted.len() < 2), (vec![0], Vec::new(), true));
    }
}

#[test]
fn a_receiver_reads_as_much_of_a_message_as_it_has_room_for_and_then_tells_the_sender() {
    for (room, expected) in [(40, &[(0, 16), (16, 16), (32, 8)][..]), (0, &[])] {
        let (sender, mut receiver) = rendezvous_by(by_rail(0), (100, room), None, None);
        let outcome = Outcome { source: 3, tag: 7, length: 100, is_truncated: true };
        assert_eq!(receiver.noted, [(0, outcome)]);
        assert_eq!(receiver.told.iter().find(|told| told.0 == 'B'), Some(&('B', 0, (0, 0))));
        let mut read = Vec::new();
        while let Some((.., part)) = receiver.reads.front() {
            assert!(receiver.finished.is_empty());
            read.push((part.offset, part.length));
            receiver.complete_read();
        }
        assert_eq!(read, expected);
        is_finished_by_messages(sender, receiver);
    }
}

#[test]
fn the_reads_of_two_messages_share_a_rail_alike() {
    let (_, mut receiver) = rendezvous_by(by_rail(0), (100, 100), None, None);
    let second = receiver.request(Role::Receive, vec![0; 100]);
    let body = Body::ReadyToSend(TransferId(9), Memory { key: 1, address: 4096, length: 100 });
    delivery::arrived(&(), &mut receiver, second, Envelope::new(3, 7), Arrived { from: by_rail(0), id: 0, body });
    // Neither is ahead of the other by more than the reads that a message has in flight.
    let mut ahead = 0_i32;
    while let Some((of, ..)) = receiver.reads.front() {
        ahead += if *of == second { -1 } else { 1 };
        assert!(ahead.unsigned_abs() as usize <= stripes::MOST, "{:?}", receiver.reads);
        receiver.complete_read();
    }
    assert_eq!(receiver.finished, [0, second]);
}

#[test]
fn another_rail_repeats_the_reads_of_a_failed_one_and_if_none_is_left_the_sender_sends_copies() {
    let keys = [0, 1].map(|port| PortKey { port, key: port });
    for failing in 0..=2 {
        let (sender, mut receiver) = rendezvous_by(by_rail(0), (100, 100), Some(&keys), None);
        assert_eq!(receiver.registered, [0, 1]);
        let mut read = 0;
        while let Some((_, rail, _, part)) = receiver.reads.pop_front() {
            let is_failed = rail < failing;
            read += if is_failed { 0 } else { part.length };
            let outcome = if is_failed { Err(Failed { status: Status::FLUSHED, posted: true }) } else { Ok(()) };
            read::done(&(), &mut receiver, 0, rail, outcome);
        }
        assert_eq!((read, receiver.finished.len()), if failing < 2 { (100, 1) } else { (0, 0) });
        is_finished_by_messages(sender, receiver);
    }
}

#[test]
fn within_a_host_the_kernel_copies_a_message_and_if_it_refuses_the_sender_sends_copies() {
    for kernel_copies in [Some(true), Some(false), None] {
        let (sender, receiver) = rendezvous_by(Route::local(1), (100, 60), None, kernel_copies);
        assert_eq!(receiver.finished.len(), usize::from(kernel_copies == Some(true)));
        is_finished_by_messages(sender, receiver);
    }
}

#[test]
fn sends_that_wait_for_a_buffer_take_turns() {
    let (mut sender, mut receiver) = (SmallHost::new(), SmallHost::new());
    sender.free_buffers = 1;
    let sends = [0, 1].map(|of| sender.announced(vec![of; 24]));
    for (_, number) in sends {
        let receive = receiver.request(Role::Receive, vec![9; 24]);
        fragments::ask(&(), &mut receiver, receive, (ROUTE, number), (24, Reason::Gaps));
        sender.receive_from(&mut receiver);
    }
    let mut order = Vec::new();
    while let Some((_, bytes)) = sender.sent.front() {
        let of = usize::from(bytes[0]);
        order.push(of);
        receiver.receive_from(&mut sender);
        sender.fragment_done();
    }
    assert_eq!((order, receiver.finished), (vec![0, 0, 1, 0, 1, 1], vec![0, 1]));
}

#[test]
fn an_answer_with_too_many_bytes_or_without_a_transfer_sends_nothing() {
    let mut host = SmallHost::new();
    let (send, number) = host.announced(vec![1; 20]);
    for asked in [0, 21, u64::MAX] {
        fragments::wanted(&(), &mut host, (number, TransferId(7)), (asked, Reason::Gaps));
        assert_eq!(host.refused.take(), Some(asked));
    }
    fragments::wanted(&(), &mut host, (TransferId(number.0 + 1), TransferId(7)), (20, Reason::Gaps));
    fragments::received(&mut host, number, 0, &[1; 8]);
    assert!(matches!(host.cores[send].transfer, Transfer::Unanswered { .. }) && host.refused.is_none());
    assert!(host.sent.is_empty() && host.finished.is_empty());
}

#[test]
fn tools_are_told_by_how_many_rails_an_announced_message_may_be_read() {
    for others in 0..3 {
        let mut host = SmallHost::new();
        host.hears = Some(true);
        host.others = vec![(1, ()); others];
        host.send(7, 1, LONG);
        assert_eq!(host.rails, [1 + others as u32]);
    }
}

#[test]
fn finished_ends_a_send_whose_receiver_has_read_once() {
    let mut host = SmallHost::new();
    let (send, number) = host.announced(vec![1; 20]);
    for _ in 0..2 {
        rendezvous::finished(&(), &mut host, number, 20);
        assert_eq!((&*host.finished, host.registered.len()), (&[send][..], 0));
    }
    assert!(matches!(host.cores[send].transfer, Transfer::None));
}

#[test]
fn a_sender_that_is_held_back_announces_its_window_and_sends_the_rest_when_it_is_asked_for_more() {
    let (mut sender, mut receiver) = (SmallHost::new(), SmallHost::new());
    let deliver = |sender: &mut SmallHost, receiver: &mut SmallHost| {
        let mut kinds = String::new();
        while let Some(message) = sender.sent.pop_front() {
            kinds.push(match message.0 {
                Header::Eager(_) => 'e',
                Header::ReadyToSend(..) => 'a',
                Header::Pending(_) => 'p',
                Header::Fragment { .. } => 'f',
                _ => '?',
            });
            if let Header::Fragment { .. } = message.0 {
                sender.fragment_done();
            }
            receiver.handle(message);
        }
        kinds
    };
    (0..2).for_each(|number| sender.send(1, number, 4));
    assert_eq!(deliver(&mut sender, &mut receiver), "ee");
    sender.receive_from(&mut receiver);
    (2..6).for_each(|number| sender.send(1, number, 4));
    assert_eq!(deliver(&mut sender, &mut receiver), "aap", "one report of all that pend");
    assert!(receiver.sent.is_empty(), "no receive waits");
    receiver.receive(2);
    sender.receive_from(&mut receiver);
    assert_eq!(deliver(&mut sender, &mut receiver), "aa");
    sender.send(1, 6, 4);
    assert_eq!(deliver(&mut sender, &mut receiver), "p");
    sender.receive_from(&mut receiver);
    assert_eq!(deliver(&mut sender, &mut receiver), "a", "a receive waits");
    (0..7).for_each(|_| receiver.receive(1));
    receiver.sent.drain(..).for_each(|answer| sender.handle(answer));
    assert_eq!(deliver(&mut sender, &mut receiver), "fffff", "all announced messages were short");
    assert!(sender.messenger.flow.outgoing.is_free());
    assert_eq!(receiver.got(), (0..7).map(|number| (1, number)).collect::<Vec<_>>());
}

#[test]
fn an_abandoned_send_takes_no_place_in_the_window_of_a_peer_that_holds_back() {
    let mut sender = SmallHost::new();
    sender.handle((Header::Flow(Word { number: 1, holds_back: true }), Vec::new()));
    (0..4).for_each(|number| sender.send(1, number, 4));
    (2..4).for_each(|pending| sender.cores[pending].tag = ABANDONED);
    sender.handle((Header::More(CONTEXT), Vec::new()));
    assert_eq!(sender.finished, [2, 3]);
    sender.send(1, 4, 4);
    assert!(matches!(sender.sent.back(), Some((Header::ReadyToSend(..), _))), "the window of four has two messages");
}
