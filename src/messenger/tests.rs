// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocols step by step, with a host that has neither ports nor tools.

use super::arrived::{Arrived, Body};
use super::host::{Bytes, Data, Host, Moved};
use super::link::Link;
use super::matching::{Envelope, Matching, Pattern};
use super::oneself;
use super::request::{Core, Mode, Outcome, Role, Transfer};
use super::transfer_id::Transfers;

/// A process with one communicator, in which it has rank 3. A handle is an index in `cores`.
#[derive(Default)]
struct SmallHost {
    cores: Vec<Core<SmallHost>>,
    transfers: Transfers<usize>,
    queues: Matching<usize, Arrived>,
    noted: Vec<(usize, Outcome)>,
    finished: Vec<usize>,
    /// Events: a message arrived (a), was stored (i); the transfer of a request begins (B), ends (E).
    told: Vec<(char, usize, Bytes)>,
}

const EAGER_LIMIT: usize = 64;

impl SmallHost {
    /// Makes a request with tag 7.
    fn request(&mut self, role: Role, data: Vec<u8>) -> usize {
        let (posted, link, transfer) = (0, Link::UNKNOWN, Transfer::None);
        self.cores.push(Core { role, peer: 3, tag: 7, data, posted, link, transfer });
        self.cores.len() - 1
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
    fn transfers(&mut self) -> &mut Transfers<usize> {
        &mut self.transfers
    }
    fn rank(&mut self, _request: usize) -> i32 {
        3
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
}

impl Data for Vec<u8> {
    fn length(&self) -> usize {
        self.len()
    }
    fn take_all(&mut self, to: &mut [u8]) -> bool {
        to.copy_from_slice(self);
        true
    }
}

/// Returns the events of a copy of `bytes` bytes from a send to its receive.
fn copy_of(bytes: u64, send: usize, receive: usize) -> [(char, usize, Bytes); 4] {
    let [begun, ended] = [(0, bytes), (bytes, 0)].map(|(offset, length)| Bytes::Of { offset, length });
    [('B', send, begun), ('B', receive, Bytes::All), ('E', send, ended), ('E', receive, Bytes::None)]
}

#[test]
fn a_message_to_oneself_is_copied_to_its_posted_receive_as_far_as_that_has_room() {
    for room in [12, 10, 4] {
        let mut host = SmallHost::default();
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
fn a_message_to_oneself_without_a_receive_is_copied_if_its_sender_may_go_on() {
    for (mode, length, is_copied) in
        [(Mode::Standard, 40, true), (Mode::Standard, EAGER_LIMIT + 1, false), (Mode::Synchronous, 10, false)]
    {
        let mut host = SmallHost::default();
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
