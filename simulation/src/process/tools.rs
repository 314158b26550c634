// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records the events of a process: those that the messenger raises (docs/peruse.md), without searches, and of the path
//! of a message only the sender's. Recording changes nothing in the process: a short message with a posted receive
//! still goes there while the port polls, and [`Process::record_taken`] records its events. Called by the messenger and
//! by [`super::calls`]. Grade: test. Threads: one. Tests: `tests/trace.rs`.

use ibex::events::{CommunicatorCreated, CommunicatorFreed, MatchingEvent, ProtocolEvent, TypeId};
use ibex::messenger::events::at_once::raise_at_once;
use ibex::messenger::events::transfers::Bytes;
use ibex::messenger::events::{self, Event, messages};
use ibex::messenger::host::{Data as _, Tools};
use ibex::messenger::matching::Envelope;
use ibex::messenger::path_taken::{PathTaken, lookup};
use ibex::messenger::receive::arrived::Arrival;
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
        let spec = MatchingEvent { operation: 0, ..self.spec(context, (to as i32, tag), length) };
        let shared = self.shared();
        let is_raised = raise_at_once(&*shared, self, false, (context, route), spec, true, |_| true);
        assert!(is_raised.is_ok(), "it was posted");
    }

    /// Delivers messages to posted receives while a port polls, and records that.
    pub(super) fn taking<T>(&mut self, deliver: impl FnOnce(&mut Self) -> T) -> T {
        self.is_taking = self.recorder.is_some();
        let taken = deliver(self);
        self.is_taking = false;
        taken
    }

    /// Records the arrival of a message that is delivered while its port polls.
    pub(super) fn record_taken(&mut self, receive: Handle, outcome: &Outcome) {
        if self.is_taking {
            let of = (self.requests.get(receive).context, Envelope::new(outcome.source, outcome.tag));
            let arrival = Arrival { from: Route::UNKNOWN, length: outcome.length, message: None };
            let shared = self.shared();
            let _ = messages::arrives(&*shared, self, false, of, &arrival, |_| Some(receive));
            events::raise_whole(self, false, receive, Event::XferBegin, Bytes::All);
        }
    }

    /// Records that a request is complete; a buffered send was complete when it began.
    pub(super) fn record_complete(&mut self, request: Handle) {
        if self.is_taking {
            events::raise_whole(self, false, request, Event::XferEnd, Bytes::None);
        }
        if self.requests.get(request).attached.is_none() {
            events::raise(self, request, Event::Complete);
        }
    }

    /// Records that a send begins. A buffered one is complete then, and has the events of its transfer afterwards.
    pub(super) fn record_start(&mut self, send: Handle) {
        events::raise(self, send, Event::Activate);
        if self.requests.get(send).attached.is_some() {
            events::raise(self, send, Event::Complete);
            events::raise(self, send, Event::Notify);
        }
    }

    /// Records that the program has the result of a request, which has a new number if it is started again.
    pub(super) fn record_end(&mut self, request: Handle) {
        if self.requests.get(request).attached.is_none() {
            events::raise(self, request, Event::Notify);
        }
        self.requests.get(request).core.watched.renew(0);
    }

    /// Records a new communicator, which has all processes.
    pub(super) fn record_communicator(&mut self, context: u32) {
        let Some(recorder) = &mut self.recorder else { return };
        let (rank, job, size) = (self.rank as i32, name(self.rank).job, recorder.processes);
        let rest = CommunicatorCreated::default();
        let made = CommunicatorCreated { context, rank, size, count: size, stride: 1, job, ..rest };
        recorder.put("communicator_created", |of, source, time| made.instance(of, source, time));
    }

    /// Records that a communicator is dropped.
    pub(super) fn record_freed(&mut self, context: u32) {
        let Some(recorder) = &mut self.recorder else { return };
        let gone = CommunicatorFreed { context };
        recorder.put("communicator_freed", |of, source, time| gone.instance(of, source, time));
    }

    /// Records the path of the message of a send.
    fn put_path(&mut self, id: u64, (context, length): (u32, usize), path: PathTaken) {
        let Some(recorder) = &mut self.recorder else { return };
        let PathTaken { protocol, reason, port, queue_pair, rails } = path;
        let (protocol, reason, bytes) = (protocol as u32, reason as u32, length as u64);
        let event = ProtocolEvent { id, message: 0, bytes, context, protocol, reason, port, queue_pair, rails };
        recorder.put("comm_req_protocol", |of, source, time| event.instance(of, source, time));
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

    fn wants(_: bool, event: Event) -> bool {
        event != Event::Transfer
    }

    fn wants_paths(paths: bool, role: Role) -> bool {
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

    fn raise(&mut self, _: bool, event: Event, id: u64, request: Handle) {
        if self.recorder.is_none() {
            return;
        }
        let known = self.requests.get(request);
        let (context, core) = (known.context, &known.core);
        let (operation, of, length) = ((core.role == Role::Receive).into(), (core.peer, core.tag), core.data.length());
        let mut spec = MatchingEvent { operation, ..self.spec(context, of, length) };
        self.raise_of_message(false, event, id, &mut spec);
    }

    fn raise_of_message(&mut self, _: bool, event: Event, id: u64, spec: &mut MatchingEvent) {
        let (Some(recorder), Some(of)) = (&mut self.recorder, TypeId::of_matching(event as usize)) else { return };
        let queues = &self.communicators[&spec.context].queues;
        let (posted, unexpected) = (queues.posted(), queues.unexpected());
        let event = MatchingEvent { id, posted, unexpected, ..*spec };
        recorder.put(of.row().name, |of, source, time| event.instance(of, source, time));
    }

    fn raise_path(&mut self, _: bool, request: Handle, (_, length): (u64, usize), path: PathTaken) {
        self.note_path(request, length, path);
        let known = self.requests.get(request);
        // The trace has the path from the sender alone.
        if known.core.role == Role::Receive {
            return;
        }
        let (id, of) = (known.core.watched.id, (known.context, length));
        self.put_path(id, of, path);
    }

    fn raise_path_of_message(&mut self, _: bool, id: u64, spec: &MatchingEvent, path: PathTaken) {
        self.put_path(id, (spec.context, spec.bytes as usize), path);
    }

    fn rank_in_job(&mut self, _: u32, rank: i32) -> u32 {
        rank as u32
    }

    fn route_to(&mut self, shared: &Shared, of: u32, rank: i32) -> Option<Route> {
        lookup::route_to(shared, self, of, rank)
    }

    fn record_flow(&mut self, _: &Shared, held_back: Option<Account>) {
        match held_back {
            Some(Account(route)) => _ = self.holds_back.insert(self.rank_of(route)),
            None => self.holds_back.clear(),
        }
    }
}
