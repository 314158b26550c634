// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the messenger asks of its host about requests, communicators and unexpected messages. Grade: test. Threads:
//! one.

use ibex::messenger::flow_control::Word;
use ibex::messenger::host::{Communicators, Host, Types};
use ibex::messenger::matching::Envelope;
use ibex::messenger::matching::lengths::Lengths;
use ibex::messenger::rails::lost::OutlivesPeers;
use ibex::messenger::rails::routes;
use ibex::messenger::receive::queues::Queues;
use ibex::messenger::request::{Core, Outcome};
use ibex::messenger::route::Route;
use ibex::messenger::{self};

use super::{Data, Handle, Process, Shared, name};

/// Number of peers with which not every check is made.
const MANY: usize = 100;

impl Process {
    /// Panics unless the sender of an unexpected message is held back, if their memory is beyond its bound.
    pub(super) fn must_hold_back(&self, rank: i32) {
        let is_beyond = self.messenger.flow.kept.bytes() > self.settings.unexpected_memory;
        let is_exempt = rank == self.rank as i32 || self.is_forgotten(rank);
        let may_send = !is_beyond || is_exempt || self.holds_back.contains(&rank);
        assert!(may_send, "process {rank} is not held back, and fills this one");
    }

    /// Whether this process outlives a peer that it has lost: flow control forgets what the two have told each other.
    fn is_forgotten(&self, rank: i32) -> bool {
        self.settings.outlives && self.lost.contains_key(&(rank as u32))
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
        assert!(
            !is_held || self.is_forgotten(rank),
            "process {} sends a short message to process {rank}, which holds it back",
            self.rank
        );
    }
}

impl Types for Process {
    type Handle = Handle;
    type Process = Shared;
    type Registration = u32;
    type Envelope = Envelope;
}

impl OutlivesPeers for Process {
    fn requests(&self) -> Vec<Handle> {
        self.requests.all()
    }

    fn source(&mut self, shared: &Shared, receive: Handle) -> Option<Route> {
        let rank = u32::try_from(self.requests.get(receive).core.peer).ok()?;
        Some(Route::new(0, shared.port(0).endpoint(name(rank))?))
    }
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
        self.messenger.rails.known.get(&name(rank as u32)).copied()
    }

    fn sends_whole(&mut self, send: Handle) {
        let peer = self.requests.get(send).core.peer;
        self.may_send_whole(peer);
    }

    fn skips_flow_control(&mut self, _: &Shared, send: Handle) -> bool {
        let request = self.requests.get(send);
        let (context, peer) = (request.context, request.core.peer);
        self.with_context(context).open.contains(&peer)
    }

    fn set_skips_flow_control(&mut self, _: &Shared, send: Handle, skips: bool) {
        let request = self.requests.get(send);
        let (context, peer) = (request.context, request.core.peer);
        let open = &mut self.with_context(context).open;
        _ = if skips { open.insert(peer) } else { open.remove(&peer) };
    }

    fn mark(&mut self, routes: &[Route]) {
        let peer = self.rank_of(routes[0]);
        self.communicators.values_mut().for_each(|communicator| _ = communicator.open.remove(&peer));
    }

    fn queues(&mut self, context: u32) -> (&mut Queues<Handle>, &Lengths) {
        let of = self.with_context(context);
        (&mut of.queues, &of.lengths)
    }
}

impl Host for Process {
    type Data = Data;

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
        self.record_taken(receive, outcome);
    }

    fn noted(&mut self, receive: Handle) -> ((i32, i32), usize) {
        let of = |outcome: Outcome| ((outcome.source, outcome.tag), outcome.length);
        self.requests.get(receive).outcome.map_or(((0, 0), 0), of)
    }

    fn copy(&mut self, send: Handle, receive: Handle) {
        let [from, to] = self.requests.cores([send, receive]);
        let bytes = from.data.packed();
        messenger::host::Data::put(&mut to.data, &bytes);
    }

    fn copy_from_process(&mut self, shared: &Shared, receive: Handle, _: Route, of: (u64, u64)) -> bool {
        self.kernel_copies(shared, receive, of)
    }

    fn deregister(&mut self, shared: &Shared, rail: usize, registered: u32) {
        self.memory.deregister(shared.rails[rail].place, registered);
        // With many processes this search takes too long.
        let is_named = self.messenger.rails.known.len() < MANY && self.fabric.reads_to(registered);
        assert!(!is_named, "a read in flight names a registration that ends");
    }

    fn cannot_unpack(&mut self, _receive: Handle) {
        unreachable!("all data can be unpacked");
    }

    fn finish(&mut self, request: Handle) {
        self.record_complete(request);
        self.end(request);
    }

    fn fail(&mut self, _: &Shared, request: Handle, _peer: Route) {
        // The job has ended otherwise.
        if self.settings.outlives {
            self.end_as(request, true);
        }
    }

    /// Notes the lost peers: the connection of their home has failed, or messages were dropped.
    fn loses_peer(&mut self) {
        self.has_failed = true;
        let shared = self.shared();
        let ends = shared.ends();
        for end in ends.iter().filter(|end| end.has_failed || end.has_lost) {
            let home = routes::home(&*shared, self, end.route);
            let has_failed = ends.iter().any(|other| other.route == home && other.has_failed);
            if (end.has_lost || has_failed) && !self.lost.contains_key(&end.rank) {
                let is_usable = ends.iter().any(|other| other.rank == end.rank && other.is_usable);
                self.lost.insert(end.rank, is_usable || !has_failed);
            }
        }
        assert!(!self.lost.is_empty(), "process {} has lost no peer, and fails", self.rank);
    }

    fn cannot_pack(&mut self, _length: usize) {
        unreachable!("all data can be packed");
    }

    fn cannot_send(&mut self, _: &Shared, send: Handle, asked: u64) {
        panic!("a peer asks for {asked} bytes: {}", self.describe_request(send));
    }
}
