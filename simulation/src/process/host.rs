// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the messenger asks of its host about requests, communicators and unexpected messages. Grade: test. Threads: one.

use ibex::messenger::flow_control::{self, Word};
use ibex::messenger::header::Match;
use ibex::messenger::host::{Host, Tools};
use ibex::messenger::matching::Envelope;
use ibex::messenger::receive::arrived::{Arrived, Body};
use ibex::messenger::receive::delivery;
use ibex::messenger::request::{Core, Outcome};
use ibex::messenger::route::Route;
use ibex::messenger::{self};

use super::{Data, Handle, Process, Settings};

impl Tools for Process {}

impl Process {
    /// Accounts for a message that no receive matches. Beyond the bound its sender must be held back.
    fn keeps(&mut self, message: &Arrived, sender: Option<Route>) {
        let settings = self.settings;
        flow_control::keep(&settings, self, message, |_| sender);
        if let Some(sender) = sender.filter(|sender| *sender != Route::LOOPBACK)
            && self.messenger.flow.kept.bytes() > settings.unexpected_memory
        {
            let rank = self.rank_of(sender);
            assert!(self.holds_back.contains(&rank), "process {rank} is not held back, and fills this one");
        }
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

    fn store(&mut self, settings: &Settings, context: u32, envelope: Envelope, message: Arrived) {
        let queues = &mut self.communicator(context).queues;
        let _ = queues.insert_unexpected(envelope, message);
        if queues.posted() > 0 {
            flow_control::found_nothing(settings, self, context);
        }
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

    fn rank(&mut self, _request: Handle) -> i32 {
        self.rank as i32
    }

    fn context(&mut self, request: Handle) -> u32 {
        self.requests.get(request).context
    }

    fn is_abandoned(&mut self, _send: Handle) -> bool {
        false
    }

    fn take_posted(&mut self, send: Handle, envelope: Envelope, _length: usize) -> Result<Handle, u64> {
        let context = self.requests.get(send).context;
        self.communicator(context).queues.search_posted(envelope).found.ok_or(0)
    }

    fn keep(&mut self, settings: &Settings, send: Handle, envelope: Envelope, message: Arrived) {
        let (context, from) = (self.requests.get(send).context, message.from);
        self.keeps(&message, Some(from));
        self.store(settings, context, envelope, message);
    }

    fn deliver_whole(
        &mut self,
        settings: &Settings,
        Match { context, rank, tag }: Match,
        bytes: &[u8],
        sender: impl Fn() -> Option<Route> + Copy,
    ) {
        let envelope = Envelope::new(rank, tag);
        if self.contexts.get(context).is_some()
            && let Some(receive) = self.communicator(context).queues.search_posted(envelope).found
        {
            return delivery::whole::<_, true>(self, receive, envelope, bytes);
        }
        let message = Arrived { from: sender().unwrap_or(Route::UNKNOWN), id: 0, body: Body::copy(bytes) };
        self.deliver(settings, context, envelope, message);
    }

    fn deliver(&mut self, settings: &Settings, context: u32, envelope: Envelope, message: Arrived) {
        let sender = Some(message.from).filter(|from| *from != Route::UNKNOWN);
        if self.contexts.get(context).is_none() {
            self.keeps(&message, sender);
            return self.contexts.keep(context, (envelope, message));
        }
        if let Some(receive) = self.communicator(context).queues.search_posted(envelope).found {
            return delivery::arrived(settings, self, receive, envelope, message);
        }
        self.keeps(&message, sender);
        self.store(settings, context, envelope, message);
    }

    fn wants_more(&mut self, context: u32) -> bool {
        self.contexts.get(context).is_some_and(|at| {
            let queues = &self.communicators[*at].queues;
            queues.posted() > 0 || queues.unexpected() == 0
        })
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
        let known = self.requests.get(request);
        assert!(!std::mem::replace(&mut known.is_finished, true), "a request ends once");
        self.finished.push(request);
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
