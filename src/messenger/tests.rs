// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocols step by step, with a host that has neither ports nor tools.

use std::sync::Arc;

use super::State;
use super::arrived::{Arrived, Body};
use super::flow_control::state::Flow;
use super::host::{Data, Host};
use super::link::Link;
use super::matching::{Envelope, Matching, Pattern};
use super::oneself;
use super::request::{Core, Mode, Outcome, Role, Transfer};

/// A process with one communicator, in which it has rank 3. A handle is an index in `cores`.
struct SmallHost {
    cores: Vec<Core<SmallHost>>,
    messenger: State<SmallHost>,
    queues: Matching<usize, Arrived>,
    noted: Vec<(usize, Outcome)>,
    finished: Vec<usize>,
}

const EAGER_LIMIT: usize = 64;

impl SmallHost {
    fn new() -> Self {
        let messenger = State::new(Flow::new(0, 0, Arc::default()));
        let (queues, cores, noted, finished) = (Matching::default(), Vec::new(), Vec::new(), Vec::new());
        SmallHost { cores, messenger, queues, noted, finished }
    }

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
    fn messenger(&mut self) -> &mut State<Self> {
        &mut self.messenger
    }
    fn rank(&mut self, _request: usize) -> i32 {
        3
    }
    fn eager_limit(&self, (): &()) -> usize {
        EAGER_LIMIT
    }
    fn take_posted(&mut self, _send: usize, envelope: Envelope, _length: usize) -> Result<usize, u64> {
        self.queues.search_posted(envelope).found.ok_or(0)
    }
    fn keep(&mut self, (): &(), _send: usize, envelope: Envelope, message: Arrived) {
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

#[test]
fn a_message_to_oneself_is_copied_to_its_posted_receive_as_far_as_that_has_room() {
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
    }
}

#[test]
fn a_message_to_oneself_without_a_receive_is_copied_if_its_sender_may_go_on() {
    for (mode, length, is_copied) in
        [(Mode::Standard, 40, true), (Mode::Standard, EAGER_LIMIT + 1, false), (Mode::Synchronous, 10, false)]
    {
        let mut host = SmallHost::new();
        let send = host.request(Role::Send(mode), vec![5; length]);
        oneself::send(&(), &mut host, send);
        assert_eq!(host.finished, vec![send; usize::from(is_copied)]);
        let kept = host.queues.search_unexpected(Pattern::new(3, 7)).found.expect("it is stored");
        assert_eq!(kept.message.length(), length);
        let Body::Announced(sender, _) = kept.message.body else { continue };
        let receive = host.request(Role::Receive, vec![0; length]);
        for _ in 0..2 {
            oneself::receive(&mut host, receive, kept.envelope, sender);
            assert_eq!((&*host.finished, &host.cores[receive].data), (&[send, receive][..], &vec![5; length]));
        }
    }
}
