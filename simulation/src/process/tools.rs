// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a recorded process tells its recorder: the events that the messenger raises (docs/peruse.md), without searches.
//! The sender tells the path of a message. Recording changes nothing in the process: a short message with a posted
//! receive still goes there while the port polls, and [`Process::tell_taken`] tells its events. Called by the messenger
//! and by [`super::calls`]. Grade: test. Threads: one. Tests: `tests/trace.rs`.

use ibex::events::{CommunicatorCreated, CommunicatorFreed, MatchingEvent, ProtocolEvent, TypeId};
use ibex::messenger::events::transfers::Bytes;
use ibex::messenger::events::{self, Event, messages};
use ibex::messenger::host::{Data as _, Tools};
use ibex::messenger::matching::Envelope;
use ibex::messenger::path_taken::{PathTaken, lookup};
use ibex::messenger::receive::arrived::Arrival;
use ibex::messenger::receive::search;
use ibex::messenger::request::{Outcome, Role};
use ibex::messenger::route::{Account, Route};

use super::{Handle, Process, Shared, name};
use crate::recorder::Recorder;

impl Process {
    /// Records the events of this process from now on.
    pub(crate) fn record(&mut self, recorder: Recorder) {
        self.recorder = Some(Box::new(recorder));
    }

    /// Notes that the process has reached the end of the program.
    pub(crate) fn end_recording(&self) {
        self.recorder.iter().for_each(|recorder| recorder.end());
    }

    /// Records a send that was posted without a request, and has ended.
    pub(super) fn tell_sent(&mut self, route: Route, (to, context, tag): (u32, u32, i32), length: usize) {
        if self.recorder.is_none() {
            return;
        }
        let (id, path) = (self.numbers(1), lookup::eager(&*self.shared, route, length));
        let mut spec = MatchingEvent { operation: 0, ..self.spec(context, (to as i32, tag), length) };
        for event in [Event::Activate, Event::XferBegin, Event::XferEnd, Event::Complete, Event::Notify] {
            if event == Event::XferEnd {
                self.put_path(id, (context, length), path);
            }
            self.tell_of_message(false, event, id, &mut spec);
        }
    }

    /// Delivers an eager message to its posted receive, if there is one, while its port polls. Returns whether it did.
    pub(super) fn takes(&mut self, message: &[u8]) -> bool {
        self.is_taking = self.recorder.is_some();
        let is_taken = search::is_taken(self, message, None);
        self.is_taking = false;
        is_taken
    }

    /// Records the arrival of a message that is delivered while its port polls.
    pub(super) fn tell_taken(&mut self, receive: Handle, outcome: &Outcome) {
        if self.is_taking {
            let of = (self.requests.get(receive).context, Envelope::new(outcome.source, outcome.tag));
            let arrival = Arrival { from: Route::UNKNOWN, length: outcome.length, message: None };
            let shared = self.shared();
            let _ = messages::arrives(&*shared, self, false, of, &arrival, |_| Some(receive));
            events::raise_whole(self, false, receive, Event::XferBegin, Bytes::All);
        }
    }

    /// Records that a request is complete; a buffered send was complete when it began.
    pub(super) fn tell_complete(&mut self, request: Handle) {
        if self.is_taking {
            events::raise_whole(self, false, request, Event::XferEnd, Bytes::None);
        }
        if self.requests.get(request).attached.is_none() {
            events::raise(self, request, Event::Complete);
        }
    }

    /// Records that a send begins. A buffered one is complete then, and has the events of its transfer afterwards.
    pub(super) fn tell_start(&mut self, send: Handle) {
        events::raise(self, send, Event::Activate);
        if self.requests.get(send).attached.is_some() {
            events::raise(self, send, Event::Complete);
            events::raise(self, send, Event::Notify);
        }
    }

    /// Records that the program has the result of a request, which has a new number if it is started again.
    pub(super) fn tell_end(&mut self, request: Handle) {
        if self.requests.get(request).attached.is_none() {
            events::raise(self, request, Event::Notify);
        }
        self.requests.get(request).core.watched.renew(0);
    }

    /// Records a new communicator, which has all processes.
    pub(super) fn tell_communicator(&mut self, context: u32) {
        let Some(recorder) = &mut self.recorder else { return };
        let (rank, job, size) = (self.rank as i32, name(self.rank).job, recorder.processes);
        let rest = CommunicatorCreated::default();
        let made = CommunicatorCreated { context, rank, size, count: size, stride: 1, job, ..rest };
        recorder.put("communicator_created", |of, source, time| made.instance(of, source, time));
    }

    /// Records that a communicator is dropped.
    pub(super) fn tell_freed(&mut self, context: u32) {
        let Some(recorder) = &mut self.recorder else { return };
        let gone = CommunicatorFreed { context };
        recorder.put("communicator_freed", |of, source, time| gone.instance(of, source, time));
    }

    /// Records the path of the message of a send.
    fn put_path(&mut self, id: u64, (context, length): (u32, usize), path: PathTaken) {
        let Some(recorder) = &mut self.recorder else { return };
        let PathTaken { protocol, reason, port, queue_pair, rails } = path;
        let (protocol, reason, bytes) = (protocol as u32, reason as u32, length as u64);
        let told = ProtocolEvent { id, message: 0, bytes, context, protocol, reason, port, queue_pair, rails };
        recorder.put("comm_req_protocol", |of, source, time| told.instance(of, source, time));
    }
}

impl Tools for Process {
    /// Whether they hear of the paths of receives.
    type Listeners = bool;
    type Spec = MatchingEvent;

    fn listeners(&mut self, _: u32) -> Option<bool> {
        (self.recorder.is_some() || self.paths.is_some()).then_some(self.paths.is_some())
    }

    fn listeners_of(&mut self, request: Handle) -> Option<bool> {
        let of = self.requests.get(request).context;
        self.listeners(of)
    }

    fn hear(_: bool, event: Event) -> bool {
        event != Event::Transfer
    }

    fn hear_paths(paths: bool, role: Role) -> bool {
        paths || role != Role::Receive
    }

    fn numbers(&mut self, count: u64) -> u64 {
        self.recorder.as_mut().map_or(0, |recorder| recorder.numbers(count))
    }

    fn spec(&mut self, context: u32, (peer, tag): (i32, i32), length: usize) -> MatchingEvent {
        let (bytes, count, rest) = (length as u64, length as i32, MatchingEvent::default());
        MatchingEvent { bytes, peer, tag, operation: 1, context, count, ..rest }
    }

    fn of_spec(spec: &MatchingEvent) -> ((i32, i32), usize) {
        ((spec.peer, spec.tag), spec.bytes as usize)
    }

    fn tell(&mut self, _: bool, event: Event, id: u64, request: Handle) {
        if self.recorder.is_none() {
            return;
        }
        let known = self.requests.get(request);
        let (context, core) = (known.context, &known.core);
        let (operation, of, length) = ((core.role == Role::Receive).into(), (core.peer, core.tag), core.data.length());
        let mut spec = MatchingEvent { operation, ..self.spec(context, of, length) };
        self.tell_of_message(false, event, id, &mut spec);
    }

    fn tell_of_message(&mut self, _: bool, event: Event, id: u64, spec: &mut MatchingEvent) {
        let (Some(recorder), Some(of)) = (&mut self.recorder, TypeId::of_matching(event as usize)) else { return };
        let queues = &self.communicators[&spec.context].queues;
        let (posted, unexpected) = (queues.posted(), queues.unexpected());
        let told = MatchingEvent { id, posted, unexpected, ..*spec };
        recorder.put(of.row().name, |of, source, time| told.instance(of, source, time));
    }

    fn tell_path(&mut self, _: bool, request: Handle, (_, length): (u64, usize), path: PathTaken) {
        self.note_path(request, length, path);
        let known = self.requests.get(request);
        // In the trace the sender tells the path.
        if known.core.role == Role::Receive {
            return;
        }
        let (id, of) = (known.core.watched.id, (known.context, length));
        self.put_path(id, of, path);
    }

    fn rank_in_job(&mut self, _: u32, rank: i32) -> u32 {
        rank as u32
    }

    fn route_to(&mut self, shared: &Shared, of: u32, rank: i32) -> Option<Route> {
        lookup::route_to(shared, self, of, rank)
    }

    fn sends_whole(&mut self, send: Handle) {
        let peer = self.requests.get(send).core.peer;
        self.may_send_whole(peer);
    }

    fn stored(&mut self, source: i32) {
        self.must_hold_back(source);
    }

    fn record_flow(&mut self, _: &Shared, held_back: Option<Account>) {
        match held_back {
            Some(Account(route)) => _ = self.holds_back.insert(self.rank_of(route)),
            None => self.holds_back.clear(),
        }
    }
}
