// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the messenger asks of its host about requests, communicators and unexpected messages. Grade: test. Threads:
//! one.

use ibex::messenger::flow_control::Word;
use ibex::messenger::host::{Communicators, Host, Tools};
use ibex::messenger::matching::{Envelope, Matching};
use ibex::messenger::receive::arrived::Arrived;
use ibex::messenger::request::{Core, Outcome};
use ibex::messenger::route::Route;
use ibex::messenger::{self};

use super::{Data, Handle, Process};

impl Process {
    /// Panics unless the sender of an unexpected message is held back, if their memory is beyond its bound.
    pub(super) fn must_hold_back(&self, rank: i32) {
        let is_beyond = self.messenger.flow.kept.bytes() > self.settings.unexpected_memory;
        let may_send = !is_beyond || rank == self.rank as i32 || self.holds_back.contains(&rank);
        assert!(may_send, "process {rank} is not held back, and fills this one");
    }

    /// Notes a word that this process sends to a peer.
    pub(super) fn says(&mut self, route: Route, word: Word) {
        let rank = self.rank_of(route);
        _ = if word.holds_back { self.holds_back.insert(rank) } else { self.holds_back.remove(&rank) };
    }

    /// Notes a word of a peer, which this process handles now.
    pub(super) fn hears(&mut self, route: Route, word: Word) {
        let rank = self.rank_of(route);
        let last = self.held_by.entry(rank).or_default();
        if word.number > last.0 {
            *last = (word.number, word.holds_back);
        }
    }

    /// Panics if a peer holds this process back.
    pub(super) fn may_send_whole(&self, rank: i32) {
        let is_held = self.held_by.get(&rank).is_some_and(|(_, is_held)| *is_held);
        assert!(!is_held, "process {} sends a short message to process {rank}, which holds it back", self.rank);
    }
}

impl Tools for Process {
    type Listeners = ();
}

/// A communicator is its context number.
impl Communicators for Process {
    type Communicator = u32;

    fn communicator(&mut self, request: Handle) -> u32 {
        self.requests.get(request).context
    }

    fn number(&mut self, context: u32) -> u32 {
        context
    }

    fn rank(&mut self, _: u32) -> i32 {
        self.rank as i32
    }

    fn context(&mut self, request: Handle) -> u32 {
        self.requests.get(request).context
    }

    fn is_abandoned(&mut self, _send: Handle) -> bool {
        false
    }

    fn known_route(&mut self, _: u32, rank: i32) -> Option<Route> {
        self.routes.get(&(rank as u32)).copied()
    }

    fn queues(&mut self, context: u32) -> &mut Matching<Handle, Arrived> {
        &mut self.with_context(context).queues
    }

    fn insert_unexpected(&mut self, context: u32, envelope: Envelope, message: Arrived) {
        self.must_hold_back(envelope.source());
        let _ = self.queues(context).insert_unexpected(envelope, message);
    }
}

impl Host for Process {
    type Data = Data;
    type WatchedReads = ();

    fn core(&mut self, request: Handle) -> &mut Core<Process> {
        &mut self.requests.get(request).core
    }

    fn messenger(&mut self) -> &mut messenger::State<Process> {
        &mut self.messenger
    }

    fn note(&mut self, receive: Handle, outcome: &Outcome) {
        let request = self.requests.get(receive);
        assert!(request.outcome.is_none(), "a receive matches one message");
        request.outcome = Some(*outcome);
    }

    fn copy(&mut self, send: Handle, receive: Handle) {
        let [from, to] = self.requests.cores([send, receive]);
        let bytes = from.data.packed();
        messenger::host::Data::put(&mut to.data, &bytes);
    }

    fn cannot_unpack(&mut self, _receive: Handle) {
        unreachable!("all data can be unpacked");
    }

    fn finish(&mut self, request: Handle) {
        self.ends(request);
    }

    fn fails(&mut self) {
        self.has_failed = true;
    }

    fn cannot_pack(&mut self, _length: usize) {
        unreachable!("all data can be packed");
    }

    fn cannot_send(&mut self, asked: u64, length: u64) {
        panic!("a peer asks for {asked} bytes of a message of {length}");
    }
}
