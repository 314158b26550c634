// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program calls: sends, receives, searches (`FI_PEEK`) and cancels; and the completions that they report.
//!
//! A short send to a peer that needs no flow control is posted without a request. Grade: hot. Threads: the one that has
//! entered the endpoint. Tests: `hw-tests`.

use ibex::messenger::events::{self, Event};
use ibex::messenger::header::{Header, Match, WireEnvelope as _};
use ibex::messenger::host::{Data as _, Process as _};
use ibex::messenger::matching::{ADDR_UNSPEC, FiTag, MessageHandle, Tagged};
use ibex::messenger::receive::probe;
use ibex::messenger::receive::search::{self, Posting};
use ibex::messenger::request::{Mode, Role};
use ibex::messenger::route::Route;
use ibex::messenger::send;
use ibex::transport::Sent;

use super::data::Data;
use super::request::{Call, Handle, Hears, Request};
use super::{Kind, Shared, State, tag};
use crate::cq::{Completion, Failure};
use crate::entry::Result;
use crate::sys;

/// Where a message goes, and what it carries besides its data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    /// The receiver, in the address vector.
    pub(crate) to: sys::fi_addr_t,
    pub(crate) tag: u64,
    /// Remote CQ data.
    pub(crate) data: Option<u64>,
}

/// Which messages a receive or a search takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// The sender in the address vector, or `FI_ADDR_UNSPEC`.
    pub(crate) from: sys::fi_addr_t,
    pub(crate) tag: u64,
    /// Bits of the tag that are not compared.
    pub(crate) ignore: u64,
}

/// What happens to the message that a search finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It stays for later receives.
    Stays,
    /// It is claimed: [`State::receive_claimed`] with the same context receives it.
    Claimed,
    /// It is dropped.
    Discarded,
}

/// A completion, or a failure, that is to be reported.
pub(super) struct Report {
    call: Call,
    completion: Completion,
    /// The sender of a received message.
    source: Option<u64>,
    failure: Option<Failure<'static>>,
}

/// Makes the completion of a receive, or of a search.
pub(super) fn completion_of(call: Call, tag: u64, data: Option<u64>, length: usize) -> Completion {
    let flags = call.kind.received() | if data.is_some() { sys::FI_REMOTE_CQ_DATA } else { 0 };
    let rest = Completion::default();
    Completion { context: call.context, flags, length, data: data.unwrap_or(0), tag, ..rest }
}

impl State {
    /// Starts a send. `mode`: what its completion says of the message, besides that its memory is free.
    /// `is_injected`: the program reuses the memory at once.
    #[inline(always)]
    pub(crate) fn send(
        &mut self,
        shared: &Shared,
        call: Call,
        message: Message,
        data: Data,
        (mode, is_injected): (Mode, bool),
    ) -> Result<()> {
        let route = self.route(shared, message.to).ok_or(sys::FI_EINVAL)?;
        let of = tag(message.tag, message.data);
        if mode == Mode::Standard && self.recording.is_none() && self.sends_at_once(shared, route, call.kind, of, &data)
        {
            self.report_send(call);
            return Ok(());
        }
        self.begin(shared, call, (route, of), if is_injected { data.copied() } else { data }, mode);
        Ok(())
    }

    /// Starts a send that needs a request.
    #[inline(never)]
    fn begin(&mut self, shared: &Shared, call: Call, (route, of): (Route, FiTag), data: Data, mode: Mode) {
        let send = self.requests.take(Role::Send(mode), (route.bits(), of), data, call);
        events::raise(self, send, Event::Activate);
        send::begin(shared, self, send, route);
        self.leave(shared);
    }

    /// Sends a short message inside the work request, without a request of the messenger. False: not now.
    #[inline(always)]
    fn sends_at_once(&mut self, shared: &Shared, route: Route, kind: Kind, of: FiTag, data: &Data) -> bool {
        if !self.peers.skips(route, kind) {
            return false;
        }
        let envelope = Tagged { source: ADDR_UNSPEC, tag: of.tag, data: of.data };
        let header = Header::eager(Match { context: kind as u32, envelope });
        let Some(span) = data.span().filter(|span| header.len() + span.len() <= shared.rail.max_inline) else {
            return false;
        };
        let Some(mut port) = shared.enter_port(0) else { return false };
        port.send_inline(route.to(), Shared::TAG, header[..].into(), span) == Ok(Sent::Posted)
    }

    /// Posts a receive.
    #[inline(always)]
    pub(crate) fn receive(&mut self, shared: &Shared, call: Call, wanted: Wanted, data: Data) -> Result<()> {
        let of = self.wanted(shared, wanted)?;
        let receive = self.requests.take(Role::Receive, of, data, call);
        self.post(shared, receive, of);
        self.leave(shared);
        Ok(())
    }

    /// Gives a receive the message that it takes, or posts it. Returns whether it is posted.
    #[inline(always)]
    pub(super) fn post(&mut self, shared: &Shared, receive: Handle, (source, tag): (u64, FiTag)) -> bool {
        let pattern = Tagged::pattern(source, tag);
        let posting = match self.recording {
            None => search::post(shared, self, receive, pattern),
            Some(recording) => search::post_with_events(shared, self, receive, pattern, recording),
        };
        let Posting::Waits(name) = posting else { return false };
        self.requests.get(receive).core.posted = name;
        true
    }

    /// Returns the source and the tag that a receive or a search takes, in the terms of the messenger.
    #[inline]
    pub(super) fn wanted(&mut self, shared: &Shared, wanted: Wanted) -> Result<(u64, FiTag)> {
        let source = match wanted.from {
            sys::FI_ADDR_UNSPEC => ADDR_UNSPEC,
            from => self.route(shared, from).ok_or(sys::FI_EINVAL)?.bits(),
        };
        Ok((source, FiTag { tag: wanted.tag, ignore: wanted.ignore, data: None }))
    }

    /// Searches the unexpected messages. The completion says what was found, or that nothing was.
    pub(crate) fn peek(&mut self, shared: &Shared, call: Call, wanted: Wanted, found: Found) -> Result<()> {
        self.progress(shared);
        let of = self.wanted(shared, wanted)?;
        let Some(message) = probe::probe(shared, self, call.kind, of, found != Found::Stays) else {
            self.fail_receive(call, sys::FI_ENOMSG, "no message that matches the search has arrived");
            self.leave(shared);
            return Ok(());
        };
        let Tagged { source, tag, data } = message.envelope;
        let completion = completion_of(call, tag, data, message.length);
        self.complete(call, completion, Some(source));
        match (found, message.message) {
            (Found::Claimed, Some(handle)) => _ = self.claimed.insert(call.context, (handle, completion, source)),
            (Found::Discarded, Some(handle)) => self.drop_message(shared, call.kind, handle),
            _ => {}
        }
        self.leave(shared);
        Ok(())
    }

    /// Receives the message that a search with the same context has claimed. Without `data`, drops it, and reports the
    /// same as the search.
    pub(crate) fn receive_claimed(&mut self, shared: &Shared, call: Call, data: Option<Data>) -> Result<()> {
        let (message, completion, source) = self.claimed.remove(&call.context).ok_or(sys::FI_EINVAL)?;
        let Some(data) = data else {
            self.complete(call, completion, Some(source));
            self.drop_message(shared, call.kind, message);
            return Ok(());
        };
        self.receive_probed(shared, call, message, data);
        Ok(())
    }

    fn receive_probed(&mut self, shared: &Shared, call: Call, message: MessageHandle, data: Data) {
        let receive = self.requests.take(Role::Receive, (ADDR_UNSPEC, tag(0, None)), data, call);
        probe::receive(shared, self, receive, message);
        self.leave(shared);
    }

    /// Receives no byte of a message, and reports nothing.
    fn drop_message(&mut self, shared: &Shared, kind: Kind, message: MessageHandle) {
        self.receive_probed(
            shared,
            Call { context: 0, kind, is_reported: false, hears: Hears::Nobody },
            message,
            Data::NONE,
        );
    }

    /// Cancels a posted receive with this context: it ends with `FI_ECANCELED`. Returns whether there was one.
    pub(crate) fn cancel(&mut self, context: usize) -> bool {
        let posted = |(receive, of): (Handle, &Request)| {
            (of.call.context == context && of.core.role == Role::Receive).then_some((receive, of.call, of.core.posted))
        };
        let posted: Vec<_> = self.requests.active().filter_map(posted).collect();
        posted.into_iter().any(|(receive, call, name)| {
            let (queues, lengths) = &mut self.queues[call.kind as usize];
            let is_cancelled = queues.cancel(lengths, name, receive);
            if is_cancelled {
                if let Some(buffer) = self.requests.get(receive).buffer {
                    self.buffers.cancel(buffer);
                }
                for event in [Event::RemovePosted, Event::Cancel, Event::Complete] {
                    events::raise(self, receive, event);
                }
                self.fail_receive(call, sys::FI_ECANCELED, "the receive was cancelled");
                self.requests.give_back(receive);
            }
            is_cancelled
        })
    }

    #[inline]
    fn report_send(&mut self, call: Call) {
        let completion = Completion { context: call.context, flags: call.kind.sent(), ..Completion::default() };
        self.complete(call, completion, None);
    }

    /// Reports the end of a request.
    #[inline(always)]
    pub(super) fn report(&mut self, request: Handle) {
        let known = self.requests.get(request);
        let (call, role, room) = (known.call, known.core.role, known.core.data.length());
        if role != Role::Receive {
            return self.report_send(call);
        }
        let Some(outcome) = known.outcome else { return };
        let FiTag { tag, data, .. } = outcome.tag;
        let (buffer, start) = (known.buffer, known.core.data.start().map_or(0, <*const u8>::addr));
        let mut completion = completion_of(call, tag, data, outcome.length.min(room));
        if let Some(buffer) = buffer {
            self.buffers.report(buffer, start, &mut completion);
        }
        if outcome.length > room {
            let (excess, text) = (outcome.length - room, "the message is longer than the receive");
            let failure = Some(Failure { error: sys::FI_ETRUNC, excess, text });
            return self.late.push_back(Report { call, completion, source: Some(outcome.source), failure });
        }
        self.complete(call, completion, Some(outcome.source));
    }

    /// Reports a success at once, unless the source must be looked up or an earlier report waits.
    #[inline(always)]
    fn complete(&mut self, call: Call, mut completion: Completion, source: Option<u64>) {
        if let Some(source) = source {
            completion.source = self.peers.address(source);
        }
        if self.late.is_empty() && (source.is_none() || completion.source != sys::FI_ADDR_NOTAVAIL) {
            return self.reports.completed(call, &completion);
        }
        self.complete_late(call, &completion, source);
    }

    #[cold]
    fn complete_late(&mut self, call: Call, completion: &Completion, source: Option<u64>) {
        self.late.push_back(Report { call, completion: *completion, source, failure: None });
    }

    /// Makes the reports that wait for the address of a source. No port is entered.
    #[cold]
    pub(crate) fn put_late(&mut self, shared: &Shared) {
        while let Some(Report { call, mut completion, source, failure }) = self.late.pop_front() {
            completion.source = source.map_or(sys::FI_ADDR_NOTAVAIL, |source| self.address_of(shared, source));
            match failure {
                None => self.reports.completed(call, &completion),
                Some(failure) => self.reports.failed(call, completion, failure),
            }
        }
    }

    fn fail_receive(&mut self, call: Call, error: u32, text: &'static str) {
        let completion = Completion { context: call.context, flags: call.kind.received(), ..Completion::default() };
        let failure = Some(Failure { error, excess: 0, text });
        self.late.push_back(Report { call, completion, source: None, failure });
    }

    /// Ends a call, or a poll, once no port is entered.
    #[inline(always)]
    pub(crate) fn leave(&mut self, shared: &Shared) {
        if self.messenger.rails.lost.is_due() {
            self.end_lost(shared);
        }
        if self.buffers.are_due() {
            self.post_due(shared);
        }
        if !self.late.is_empty() {
            self.put_late(shared);
        }
    }
}
