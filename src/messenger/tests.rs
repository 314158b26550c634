// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocols step by step, with a host that has neither ports nor tools.

use std::collections::VecDeque;
use std::sync::Arc;

use super::State;
use super::arrived::{Arrived, Body};
use super::flow_control::state::Flow;
use super::header::Header;
use super::host::{Bytes, Data, Handed, Host, Moved};
use super::link::Link;
use super::matching::{Envelope, Matching, Pattern};
use super::oneself;
use super::rendezvous::{self, fragments};
use super::request::{Core, Mode, Outcome, Role, Transfer};
use super::transfer_id::TransferId;

/// A process with one communicator, in which it has rank 3. A handle is an index in `cores`.
struct SmallHost {
    cores: Vec<Core<SmallHost>>,
    messenger: State<SmallHost>,
    queues: Matching<usize, Arrived>,
    noted: Vec<(usize, Outcome)>,
    finished: Vec<usize>,
    /// Messages to the other process, with their data.
    sent: VecDeque<(Header, Vec<u8>)>,
    free_buffers: usize,
    /// The answer that ended the job: the number of bytes that it asked for.
    refused: Option<u64>,
    /// Announcements whose registrations have ended, and those of them that flow control had counted.
    ended: [usize; 2],
    /// Events: a message arrived (a), was stored (i); the transfer of a request begins (B), ends (E).
    told: Vec<(char, usize, Bytes)>,
}

const EAGER_LIMIT: usize = 64;

/// Most bytes of a fragment.
const FRAGMENT: usize = 8;

impl SmallHost {
    fn new() -> Self {
        let messenger = State::new(Flow::new(0, 0, Arc::default()));
        let (queues, cores, noted, finished) = (Matching::default(), Vec::new(), Vec::new(), Vec::new());
        let (sent, free_buffers, refused, ended, told) = (VecDeque::new(), 3, None, [0, 0], Vec::new());
        SmallHost { cores, messenger, queues, noted, finished, sent, free_buffers, refused, ended, told }
    }

    /// Makes a request with tag 7.
    fn request(&mut self, role: Role, data: Vec<u8>) -> usize {
        let (posted, link, transfer) = (0, Link::UNKNOWN, Transfer::None);
        self.cores.push(Core { role, peer: 3, tag: 7, data, posted, link, transfer });
        self.cores.len() - 1
    }

    /// Makes a send whose message is announced. Returns it with its number.
    fn announced(&mut self, data: Vec<u8>) -> (usize, TransferId) {
        let send = self.request(Role::Send(Mode::Standard), data);
        let announced = Transfer::Announced { registered: None, others: Vec::new(), counted: true };
        self.cores[send].transfer = announced;
        (send, self.messenger.transfers.begin(send))
    }

    /// Delivers the oldest message of another process.
    fn receive_from(&mut self, other: &mut SmallHost) {
        let (header, bytes) = other.sent.pop_front().expect("a message");
        match header {
            Header::ClearToSend { request, receive, why, length } => {
                fragments::wanted(&(), self, (TransferId(request), TransferId(receive)), (length, why));
            }
            Header::Fragment { receive, .. } => fragments::received(self, TransferId(receive), &bytes),
            _ => panic!("{header:?}"),
        }
    }

    /// Reports that a buffer with a fragment was sent.
    fn fragment_done(&mut self, send: usize) {
        self.free_buffers += 1;
        fragments::done(&(), self, send);
    }
}

impl Host for SmallHost {
    type Handle = usize;
    type Data = Vec<u8>;
    type Registration = ();
    type WatchedReads = ();
    type Process = ();

    fn core(&mut self, request: usize) -> &mut Core<Self> {
        &mut self.cores[request]
    }
    fn messenger(&mut self) -> &mut State<Self> {
        &mut self.messenger
    }
    fn rank(&mut self, _request: usize) -> i32 {
        3
    }
    fn context(&mut self, _request: usize) -> u32 {
        5
    }
    fn eager_limit(&self, (): &()) -> usize {
        EAGER_LIMIT
    }
    fn take_posted(&mut self, send: usize, envelope: Envelope, _length: usize) -> Result<usize, u64> {
        self.told.push(('a', send, Bytes::None));
        self.queues.search_posted(envelope).found.ok_or(0)
    }
    fn keep(&mut self, (): &(), send: usize, envelope: Envelope, message: Arrived) {
        self.told.push(('i', send, Bytes::None));
        self.queues.insert_unexpected(envelope, message);
    }
    fn note(&mut self, receive: usize, outcome: &Outcome) {
        self.noted.push((receive, *outcome));
    }
    fn copy(&mut self, send: usize, receive: usize) {
        let [from, to] = self.cores.get_disjoint_mut([send, receive]).expect("two requests").map(|core| &mut core.data);
        let length = from.len().min(to.len());
        to[..length].copy_from_slice(&from[..length]);
    }
    fn cannot_unpack(&mut self, _receive: usize) {
        panic!("all data can be unpacked");
    }
    fn control(&mut self, (): &(), _link: Link, header: &Header) {
        self.sent.push_back((*header, Vec::new()));
    }
    fn send_fragment(&mut self, (): &(), send: usize, receiver: TransferId, offset: u64) -> Handed {
        let Some(left) = self.free_buffers.checked_sub(1) else { return Handed::NoBuffer };
        let rest = &self.cores[send].data[offset as usize..];
        let bytes = &rest[..rest.len().min(FRAGMENT)];
        self.free_buffers = left;
        self.sent.push_back((Header::Fragment { receive: receiver.0, offset }, bytes.into()));
        Handed::Waits(bytes.len())
    }
    fn has_free_buffer(&self) -> bool {
        self.free_buffers > 0
    }
    fn put_back(&mut self, (): &(), _link: Link, _announced: Transfer<Self>) {
        self.ended[0] += 1;
    }
    fn answered(&mut self, (): &(), _link: Link, context: u32) {
        self.ended[1] += usize::from(context == 5);
    }
    fn begins(&mut self, request: usize, moved: Moved) {
        self.told.push(('B', request, moved.bytes));
    }
    fn ends(&mut self, request: usize, moved: Moved) {
        self.told.push(('E', request, moved.bytes));
    }
    fn finish(&mut self, request: usize) {
        self.finished.push(request);
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
    fn take_all(&mut self, to: &mut [u8]) -> bool {
        to.copy_from_slice(self);
        true
    }
    fn put_at(&mut self, offset: u64, from: &[u8]) -> bool {
        self[offset as usize..][..from.len()].copy_from_slice(from);
        true
    }
    fn end(&mut self) {}
}

/// Link to the other process, which leads nowhere here.
const LINK: Link = Link::UNKNOWN;

/// Returns the events of a copy of `bytes` bytes from a send to its receive.
fn copy_of(bytes: u64, send: usize, receive: usize) -> [(char, usize, Bytes); 4] {
    let [begun, ended] = [(0, bytes), (bytes, 0)].map(|(offset, length)| Bytes::Of { offset, length });
    [('B', send, begun), ('B', receive, Bytes::All), ('E', send, ended), ('E', receive, Bytes::None)]
}

#[test]
fn a_process_copies_a_message_to_itself_as_far_as_the_posted_receive_has_room() {
    for room in [12, 10, 4] {
        let mut host = SmallHost::new();
        let send = host.request(Role::Send(Mode::Standard), (0..10).collect());
        let receive = host.request(Role::Receive, vec![99; room]);
        host.queues.insert_posted(Pattern::new(3, 7), receive);
        oneself::send(&(), &mut host, send);
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
        oneself::send(&(), &mut host, send);
        assert_eq!(host.finished, vec![send; usize::from(is_copied)]);
        let kept = host.queues.search_unexpected(Pattern::new(3, 7)).found.expect("it is stored");
        assert_eq!(kept.message.length(), length);
        let letters: String = host.told.drain(..).map(|(letter, ..)| letter).collect();
        assert_eq!(letters, if is_copied { "aBiE" } else { "ai" });
        let Body::Announced(sender, _) = kept.message.body else { continue };
        let receive = host.request(Role::Receive, vec![0; length]);
        for _ in 0..2 {
            oneself::receive(&mut host, receive, kept.envelope, sender);
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
    fragments::ask(&(), &mut receiver, receive, (LINK, number), (44, 0));
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
    sender.fragment_done(send);
    assert_eq!(offsets(&sender), [8, 16, 24]);
    for _ in 0..3 {
        receiver.receive_from(&mut sender);
        sender.fragment_done(send);
    }
    assert_eq!((offsets(&sender), sender.messenger.starved.len()), (vec![32, 40], 0));
    receiver.receive_from(&mut sender);
    receiver.receive_from(&mut sender);
    // The last fragment has four bytes for which the receive has no room.
    assert_eq!((&*receiver.finished, &receiver.cores[receive].data), (&[receive][..], &(0..44).collect::<Vec<_>>()));
    sender.fragment_done(send);
    assert!(sender.finished.is_empty(), "the adapter reads the last fragment");
    sender.fragment_done(send);
    assert_eq!((&*sender.finished, sender.free_buffers, sender.ended), (&[send][..], 3, [1, 1]));
}

#[test]
fn sends_that_wait_for_a_buffer_take_turns() {
    let (mut sender, mut receiver) = (SmallHost::new(), SmallHost::new());
    sender.free_buffers = 1;
    let sends = [0, 1].map(|of| sender.announced(vec![of; 24]));
    for (_, number) in sends {
        let receive = receiver.request(Role::Receive, vec![9; 24]);
        fragments::ask(&(), &mut receiver, receive, (LINK, number), (24, 0));
        sender.receive_from(&mut receiver);
    }
    let mut order = Vec::new();
    while let Some((_, bytes)) = sender.sent.front() {
        let of = usize::from(bytes[0]);
        order.push(of);
        receiver.receive_from(&mut sender);
        sender.fragment_done(sends[of].0);
    }
    assert_eq!((order, receiver.finished), (vec![0, 0, 1, 0, 1, 1], vec![0, 1]));
}

#[test]
fn an_answer_with_too_many_bytes_or_without_a_transfer_sends_nothing() {
    let mut host = SmallHost::new();
    let (send, number) = host.announced(vec![1; 20]);
    for asked in [0, 21, u64::MAX] {
        fragments::wanted(&(), &mut host, (number, TransferId(7)), (asked, 0));
        assert_eq!(host.refused.take(), Some(asked));
    }
    fragments::wanted(&(), &mut host, (TransferId(number.0 + 1), TransferId(7)), (20, 0));
    fragments::received(&mut host, number, &[1; 8]);
    assert!(matches!(host.cores[send].transfer, Transfer::Announced { .. }) && host.refused.is_none());
    assert!(host.sent.is_empty() && host.finished.is_empty());
}

#[test]
fn finished_ends_a_send_whose_receiver_has_read_once() {
    let mut host = SmallHost::new();
    let (send, number) = host.announced(vec![1; 20]);
    for _ in 0..2 {
        rendezvous::finished(&(), &mut host, number, 20);
        assert_eq!((&*host.finished, host.ended), (&[send][..], [1, 1]));
    }
    assert!(matches!(host.cores[send].transfer, Transfer::None));
}
