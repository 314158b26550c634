// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a recorded process tells its recorder: the events of its requests and messages, as the PML raises them
//! (docs/peruse.md), without searches. The sender tells the path of a message. Recording changes nothing in the
//! process: a short message with a posted receive still goes there while the port polls, and [`Process::tell_taken`]
//! tells its events afterwards. Called by the messenger and by [`super::calls`]. Grade: test. Threads: one. Tests:
//! `tests/trace.rs`.

use ibex::events::{CommunicatorCreated, CommunicatorFreed, MatchingEvent, ProtocolEvent};
use ibex::messenger::host::{Bytes, Data as _, Moved, Ports as _, Tools};
use ibex::messenger::matching::{Envelope, Message};
use ibex::messenger::path_taken::{PathTaken, Protocol, Reason, of_message};
use ibex::messenger::receive::arrived::{Arrival, Arrived};
use ibex::messenger::request::{Outcome, Role};
use ibex::messenger::route::{Account, Route};

use super::{Handle, Process, Shared, name};
use crate::recorder::{Recorder, Told};

/// Context number and envelope of a message.
type Of = (u32, Envelope);

/// Number and length of a message.
type Known = (u64, usize);

impl Process {
    /// Records the events of this process from now on.
    pub(crate) fn record(&mut self, recorder: Recorder) {
        self.recorder = Some(Box::new(recorder));
    }

    /// Notes that the process has reached the end of the program.
    pub(crate) fn end_recording(&self) {
        self.recorder.iter().for_each(|recorder| recorder.end());
    }

    /// Returns what was recorded of a request; `None`: nothing is recorded.
    fn told(&mut self, request: Handle) -> Option<&mut Told> {
        Some(self.recorder.as_mut()?.told(request.bits()))
    }

    /// Records a matching event of the request or message with this number.
    fn put(&mut self, event: &str, (id, is_receive): (u64, bool), context: u32, of: (i32, i32), length: usize) {
        let Some(recorder) = &mut self.recorder else { return };
        let queues = &self.communicators[&context].queues;
        let (posted, unexpected) = (queues.posted(), queues.unexpected());
        let (bytes, count, operation, (peer, tag)) = (length as u64, length as i32, is_receive.into(), of);
        let told = MatchingEvent { id, bytes, buffer: 0, peer, tag, operation, context, posted, unexpected, count };
        recorder.put(event, |of, source, time| told.instance(of, source, time));
    }

    /// Records an event of a request.
    pub(super) fn tell(&mut self, request: Handle, event: &str) {
        let Some(&mut Told { id, .. }) = self.told(request) else { return };
        let known = self.requests.get(request);
        let (context, core) = (known.context, &known.core);
        let (is_receive, of, length) = (core.role == Role::Receive, (core.peer, core.tag), core.data.length());
        self.put(event, (id, is_receive), context, of, length);
    }

    fn tell_of_message(&mut self, event: &str, (context, envelope): Of, (id, length): Known) {
        self.put(event, (id, true), context, (envelope.source(), envelope.tag()), length);
    }

    /// Records a send that was posted without a request, and has ended.
    pub(super) fn tell_sent(&mut self, route: Route, (to, context, tag): (u32, u32, i32), length: usize) {
        let Some(id) = self.recorder.as_mut().map(|recorder| recorder.number()) else { return };
        let path = of_message::eager(&*self.shared, route, length);
        for event in ["activate", "xfer_begin", "xfer_end", "complete", "notify"] {
            if event == "xfer_end" {
                self.put_path(id, (context, length), path);
            }
            self.put(&format!("comm_req_{event}"), (id, false), context, (to as i32, tag), length);
        }
    }

    /// Records that a receive has matched an unexpected message.
    pub(super) fn tell_unexpected(&mut self, receive: Handle) {
        if let Some(told) = self.told(receive) {
            told.has_message = true;
            self.tell(receive, "comm_req_match_unex");
        }
    }

    /// Records that a message arrives, and runs the `search` for its receive. Returns its number if that finds none.
    fn tell_arrival(
        &mut self,
        of: Of,
        length: usize,
        search: impl FnOnce(&mut Self) -> Option<Handle>,
    ) -> Result<Handle, u64> {
        let message = (self.recorder.as_mut().map_or(0, |recorder| recorder.number()), length);
        self.tell_of_message("comm_msg_arrived", of, message);
        let receive = search(self).ok_or(message.0)?;
        self.tell(receive, "comm_req_remove_from_posted_q");
        self.tell_of_message("comm_msg_match_posted_req", of, message);
        self.told(receive).into_iter().for_each(|told| told.has_message = true);
        Ok(receive)
    }

    /// Records the arrival of a message that was delivered while its port polled.
    pub(super) fn tell_taken(&mut self, receive: Handle, outcome: &Outcome) {
        if self.told(receive).is_some_and(|told| !told.has_message) {
            let of = (self.requests.get(receive).context, Envelope::new(outcome.source, outcome.tag));
            let _ = self.tell_arrival(of, outcome.length, |_| Some(receive));
            self.begins(receive, Bytes::All.completed());
        }
    }

    /// Records that a request is complete, and before that the end of its transfer unless it was told.
    pub(super) fn tell_complete(&mut self, request: Handle) {
        if self.told(request).is_some() {
            let shared = self.shared();
            self.ends_whole(&shared, request, Bytes::None.completed());
            if self.requests.get(request).attached.is_none() {
                self.tell(request, "comm_req_complete");
            }
        }
    }

    /// Records that a send begins. A buffered one is complete then, and has the events of its transfer afterwards.
    pub(super) fn tell_start(&mut self, send: Handle) {
        self.tell(send, "comm_req_activate");
        if self.requests.get(send).attached.is_some() {
            self.tell(send, "comm_req_complete");
            self.tell(send, "comm_req_notify");
        }
    }

    /// Records that the program has the result of a request, which has a new number if it is started again.
    pub(super) fn tell_end(&mut self, request: Handle) {
        if self.requests.get(request).attached.is_none() {
            self.tell(request, "comm_req_notify");
        }
        self.recorder.iter_mut().for_each(|recorder| recorder.forget(request.bits()));
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
    type Listeners = ();
    type Completed = ();

    fn completed(&mut self) {}

    fn set_completed(&mut self, (): ()) {}

    fn listeners(&mut self, _: u32) -> Option<()> {
        self.recorder.is_some().then_some(())
    }

    fn arrives(
        &mut self,
        _: &Shared,
        (): (),
        of: Of,
        arrival: &Arrival<'_>,
        search: impl FnOnce(&mut Self) -> Option<Handle>,
    ) -> Result<Handle, u64> {
        self.tell_arrival(of, arrival.length, search)
    }

    fn stored(&mut self, of: Of, message: Known) {
        self.must_hold_back(of.1.source());
        self.tell_of_message("comm_msg_insert_in_unex_q", of, message);
    }

    fn seeks(
        &mut self,
        _: &Shared,
        (): (),
        context: u32,
        receive: Handle,
        search: impl FnOnce(&mut Self) -> Option<Message<Arrived>>,
    ) -> Option<Message<Arrived>> {
        self.tell(receive, "comm_req_activate");
        let found = search(self)?;
        let message = (found.message.id, found.message.length());
        self.tell_of_message("comm_msg_remove_from_unex_q", (context, found.envelope), message);
        self.tell_unexpected(receive);
        Some(found)
    }

    fn set_aside(&mut self, of: Of, message: Known) -> u64 {
        self.tell_of_message("comm_msg_remove_from_unex_q", of, message);
        message.0
    }

    fn gets_aside(&mut self, _: &Shared, _: u32, receive: Handle, _: &Message<Arrived>) {
        self.tell(receive, "comm_req_activate");
        self.tell_unexpected(receive);
    }

    fn posted(&mut self, (): (), receive: Handle) {
        self.tell(receive, "comm_req_insert_in_posted_q");
    }

    fn goes(&mut self, request: Handle, path: PathTaken) {
        let Some(&mut Told { id, .. }) = self.told(request) else { return };
        let known = self.requests.get(request);
        if known.core.role != Role::Receive {
            let of = (known.context, known.core.data.length());
            self.put_path(id, of, path);
        }
    }

    fn goes_by_route(&mut self, shared: &Shared, request: Handle, route: Route, how: (Protocol, Reason), rails: usize) {
        if self.recorder.is_some() {
            self.goes(request, of_message::by(shared, route, how, rails));
        }
    }

    fn has_begun(&mut self, request: Handle) -> bool {
        self.told(request).is_some_and(|told| told.has_begun)
    }

    fn begins(&mut self, request: Handle, _: Moved) {
        if self.told(request).is_some_and(|told| !std::mem::replace(&mut told.has_begun, true)) {
            self.tell(request, "comm_req_xfer_begin");
        }
    }

    fn begins_whole(&mut self, shared: &Shared, send: Handle, route: Route) -> bool {
        let peer = self.requests.get(send).core.peer;
        self.may_send_whole(peer);
        if self.recorder.is_some() && self.has_room(shared, route) {
            self.begins(send, Bytes::All.posted());
        }
        true
    }

    fn record_flow(&mut self, _: &Shared, held_back: Option<Account>) {
        match held_back {
            Some(Account(route)) => _ = self.holds_back.insert(self.rank_of(route)),
            None => self.holds_back.clear(),
        }
    }

    fn continues(&mut self, request: Handle, _: Moved) {
        self.tell(request, "comm_req_xfer_continue");
    }

    fn ends(&mut self, request: Handle, _: Moved) {
        if self.told(request).is_some_and(|told| !std::mem::replace(&mut told.has_ended, true)) {
            self.tell(request, "comm_req_xfer_end");
        }
    }

    fn ends_whole(&mut self, shared: &Shared, request: Handle, moved: Moved) {
        if self.told(request).is_none_or(|told| told.has_ended) {
            return;
        }
        if matches!(self.requests.get(request).core.role, Role::Send(_)) {
            self.begins(request, moved);
            let path = of_message::sent(shared, self, request);
            self.goes(request, path);
        }
        self.ends(request, moved);
    }
}
