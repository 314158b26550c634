// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program calls: sends, receives and cancels; and the completions that they report.
//!
//! A short send to a peer that needs no flow control is posted without a request. `flags` translates the flags of a
//! call, `peek` has the searches, `multi_recv` the buffers for several messages. Grade: hot. Threads: the one that has
//! entered the endpoint. Tests: `simulation`, `hw-tests`.

mod flags;
pub(super) mod multi_recv;
mod peek;

use crate::messenger::events::{self, Event};
use crate::messenger::header::{Header, Match, WireEnvelope as _};
use crate::messenger::host::{Data as _, Process as _};
use crate::messenger::matching::{ADDR_UNSPEC, FiTag, Tagged};
use crate::messenger::receive::queues::FIRST;
use crate::messenger::receive::search::{self, Posting};
use crate::messenger::request::{Mode, Role};
use crate::messenger::send;
use crate::transport::Sent;
use ibex_ffi::verbs::InlineSpan;

pub use flags::SEARCH;

use super::completion::{Completion, Failure};
use super::environment::{Data as _, Environment, Others as _};
use super::request::{Call, Handle, Hears, Outcome, Request};
use super::{Kind, OURSELVES, PieceOf, Result, Shared, State, fi, tag};

/// Where a message goes, and what it carries besides its data.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// The receiver, in the address vector.
    pub to: fi::Address,
    /// Its tag.
    pub tag: u64,
    /// Remote CQ data.
    pub data: Option<u64>,
}

/// Which messages a receive or a search takes.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The sender in the address vector, or `FI_ADDR_UNSPEC`.
    pub from: fi::Address,
    /// The tag.
    pub tag: u64,
    /// Bits of the tag that are not compared.
    pub ignore: u64,
}

/// Flags by which a send completes once its message was delivered, or matched.
pub const DELIVERED: u64 = fi::FI_DELIVERY_COMPLETE | fi::FI_MATCH_COMPLETE;

/// A completion, or a failure, that is to be reported.
pub(super) struct Report {
    call: Call,
    completion: Completion,
    /// The sender of a received message.
    source: Option<u64>,
    failure: Option<Failure<'static>>,
}

/// Makes the completion of a receive, or of a search.
#[inline(always)]
pub(super) fn completion_of(call: Call, tag: u64, data: Option<u64>, length: usize) -> Completion {
    let rest = Completion::default();
    let completion = Completion { context: call.context, flags: call.kind.received(), length, tag, ..rest };
    match data {
        Some(data) => Completion { flags: completion.flags | fi::FI_REMOTE_CQ_DATA, data, ..completion },
        None => completion,
    }
}

impl<E: Environment> State<E> {
    /// Starts a send. `mode`: what its completion says of the message, besides that its memory is free.
    /// `is_injected`: the program reuses the memory at once.
    pub(super) fn send(
        &mut self,
        shared: &Shared<E::Adapter>,
        call: Call,
        message: Message,
        data: E::Data,
        (mode, is_injected): (Mode, bool),
    ) -> Result<()> {
        if mode == Mode::Standard
            && self.recording.is_none()
            && data.inline(|span| self.is_sent_at_once(shared, call.kind, message, span)) == Some(true)
        {
            self.report_send(call);
            return Ok(());
        }
        let route = self.route(shared, message.to).ok_or(fi::FI_EINVAL)?;
        // The receiver may read a long message where it is when the send begins.
        let is_long = data.length() > shared.eager_limit(route);
        let data = if is_injected && is_long { data.copied() } else { data };
        let of = (route.bits(), tag(message.tag, message.data));
        let (send, request) = self.requests.take(Role::Send(mode), of, call);
        request.core.data = data;
        events::raise(self, send, Event::Activate);
        send::begin(shared, self, send, route);
        if is_injected {
            self.requests.copy_data(send);
        }
        if route.bits() != OURSELVES && shared.enter_port(0).is_some_and(|mut port| !port.is_ready(route.to())) {
            // A program that only sends may read no completion queue, so the send itself helps its connection along.
            self.progress(shared);
        }
        self.leave(shared);
        Ok(())
    }

    /// Sends a short message of one piece, with the endpoint's default flags, without a request. Returns false if it
    /// cannot do so now.
    #[inline(always)]
    pub fn is_sent_plainly(
        &mut self,
        shared: &Shared<E::Adapter>,
        (kind, context): (Kind, usize),
        message: Message,
        span: InlineSpan<'_>,
    ) -> bool {
        let is_sent = self.sends_plainly && self.is_sent_at_once(shared, kind, message, span);
        if is_sent {
            self.reports.sent(Completion { context, flags: kind.sent(), ..Completion::default() });
        }
        is_sent
    }

    /// Sends a short message of one piece, which reports nothing, without a request. Returns false if it cannot do so
    /// now.
    #[inline(always)]
    pub fn is_injected_plainly(
        &mut self,
        shared: &Shared<E::Adapter>,
        kind: Kind,
        message: Message,
        span: InlineSpan<'_>,
    ) -> bool {
        self.injects_plainly && self.is_sent_at_once(shared, kind, message, span)
    }

    /// Sends a short message inside the work request, without a request of the messenger. False: not now.
    #[inline(always)]
    fn is_sent_at_once(
        &mut self,
        shared: &Shared<E::Adapter>,
        kind: Kind,
        message: Message,
        span: InlineSpan<'_>,
    ) -> bool {
        let Some(route) = self.peers.short_cut(message.to, kind) else { return false };
        let envelope = Tagged { source: ADDR_UNSPEC, tag: message.tag, data: message.data };
        let header = Header::eager(Match { context: kind as u32, envelope });
        let Some(mut port) = shared.enter_port(0) else { return false };
        port.send_inline(route.to(), Shared::<E::Adapter>::TAG, header[..].into(), span) == Ok(Sent::Posted)
    }

    /// Posts a receive of one piece with the endpoint's default flags. Returns false if they ask for something else, or
    /// the receive cannot be posted.
    #[inline(always)]
    pub fn is_received_plainly(
        &mut self,
        shared: &Shared<E::Adapter>,
        (kind, context): (Kind, usize),
        wanted: Wanted,
        piece: PieceOf<E>,
    ) -> bool {
        if !self.receives_plainly[kind as usize] {
            return false;
        }
        let Ok(of) = self.wanted(shared, wanted) else { return false };
        let call = Call { context, kind, is_reported: true, hears: Hears::Queue };
        let (receive, request) = self.requests.take(Role::Receive, of, call);
        request.core.data.set(piece);
        self.post(shared, kind, receive, of);
        self.leave(shared);
        true
    }

    /// Posts a receive.
    pub(super) fn receive(
        &mut self,
        shared: &Shared<E::Adapter>,
        call: Call,
        wanted: Wanted,
        data: E::Data,
    ) -> Result<()> {
        let of = self.wanted(shared, wanted)?;
        let (receive, request) = self.requests.take(Role::Receive, of, call);
        request.core.data = data;
        self.post(shared, call.kind, receive, of);
        self.leave(shared);
        Ok(())
    }

    /// Gives a receive the message that it takes, or posts it. Returns whether it is posted.
    #[inline(always)]
    pub fn post(
        &mut self,
        shared: &Shared<E::Adapter>,
        kind: Kind,
        receive: Handle,
        (source, tag): (u64, FiTag),
    ) -> bool {
        let pattern = || Tagged::pattern(source, tag);
        let posting = match self.recording {
            None => search::post_to(shared, self, kind, receive, pattern),
            Some(recording) => search::post_with_events(shared, self, receive, pattern(), recording),
        };
        let Posting::Waits(name) = posting else { return false };
        // The name that a new request has.
        if name != FIRST {
            self.requests.get(receive).core.posted = name;
        }
        true
    }

    /// Returns the source and the tag that a receive or a search takes, in the terms of the messenger.
    #[inline(always)]
    pub(super) fn wanted(&mut self, shared: &Shared<E::Adapter>, wanted: Wanted) -> Result<(u64, FiTag)> {
        let source = match wanted.from {
            fi::FI_ADDR_UNSPEC => ADDR_UNSPEC,
            from => self.route(shared, from).ok_or(fi::FI_EINVAL)?.bits(),
        };
        Ok((source, FiTag { tag: wanted.tag, ignore: wanted.ignore, data: None }))
    }

    /// Cancels a posted receive with this context: it ends with `FI_ECANCELED`. Returns whether there was one.
    pub fn cancel(&mut self, context: usize) -> bool {
        let posted = |(receive, of): (Handle, &Request<E>)| {
            (of.call.context == context && of.core.role == Role::Receive).then_some((receive, of.call, of.core.posted))
        };
        let posted: Vec<_> = self.requests.active().filter_map(posted).collect();
        posted.into_iter().any(|(receive, call, name)| {
            let (queues, lengths) = &mut self.queues[call.kind as usize];
            let is_cancelled = queues.cancel(lengths, name, receive);
            if is_cancelled {
                let buffer = self.requests.get(receive).buffer;
                let is_last = buffer.is_some_and(|buffer| self.buffers.cancel(buffer));
                for event in [Event::RemovePosted, Event::Cancel] {
                    events::raise(self, receive, event);
                }
                self.raise_end(receive);
                let more_flags = if is_last { fi::FI_MULTI_RECV } else { 0 };
                self.fail_receive(call, more_flags, fi::FI_ECANCELED, "the receive was cancelled");
                self.requests.give_back(receive);
            }
            is_cancelled
        })
    }

    fn report_send(&mut self, call: Call) {
        let completion = Completion { context: call.context, flags: call.kind.sent(), ..Completion::default() };
        self.complete(call, completion, None);
    }

    /// Reports a whole message, if its receive is plain and the address of its source known. Returns whether it did.
    #[inline(always)]
    pub fn reports_at_once(&mut self, receive: Handle, outcome: &Outcome) -> bool {
        let known = self.requests.get(receive);
        let source = self.peers.address(outcome.source);
        if !known.is_plain || outcome.is_truncated || source == fi::FI_ADDR_NOTAVAIL || !self.late.is_empty() {
            return false;
        }
        let FiTag { tag, data, .. } = outcome.tag;
        let completion = completion_of(known.call, tag, data, outcome.length);
        self.reports.received(Completion { source, ..completion });
        true
    }

    /// Reports the end of a request.
    #[inline(never)]
    pub fn report(&mut self, request: Handle) {
        let known = self.requests.get(request);
        let (call, role, room) = (known.call, known.core.role, known.core.data.length());
        if role != Role::Receive {
            return self.report_send(call);
        }
        let Some(outcome) = known.outcome else { return };
        let FiTag { tag, data, .. } = outcome.tag;
        let (buffer, start) = (known.buffer, known.core.data.address().unwrap_or(0) as usize);
        let mut completion = completion_of(call, tag, data, outcome.length.min(room));
        if let Some(buffer) = buffer {
            self.buffers.report(buffer, start, &mut completion);
        }
        if outcome.length > room {
            let (excess, text) = (outcome.length - room, "the message is longer than the receive");
            let failure = Some(Failure { error: fi::FI_ETRUNC, excess, text });
            return self.report_late(Report { call, completion, source: Some(outcome.source), failure });
        }
        self.complete(call, completion, Some(outcome.source));
    }

    /// Reports a success at once, unless the source must be looked up or an earlier report waits.
    fn complete(&mut self, call: Call, mut completion: Completion, source: Option<u64>) {
        if let Some(source) = source {
            completion.source = self.peers.address(source);
        }
        if self.late.is_empty() && (source.is_none() || completion.source != fi::FI_ADDR_NOTAVAIL) {
            return self.reports.completed(call, completion);
        }
        self.report_late(Report { call, completion, source, failure: None });
    }

    #[cold]
    fn report_late(&mut self, report: Report) {
        self.late.push_back(report);
        self.has_more = true;
    }

    /// Makes the reports that wait for the address of a source. No port is entered.
    #[cold]
    pub fn put_late(&mut self, shared: &Shared<E::Adapter>) {
        while let Some(Report { call, mut completion, source, failure }) = self.late.pop_front() {
            completion.source = source.map_or(fi::FI_ADDR_NOTAVAIL, |source| self.address_of(shared, source));
            match failure {
                None => self.reports.completed(call, completion),
                Some(failure) => self.reports.failed(call, completion, failure),
            }
        }
    }

    fn fail_receive(&mut self, call: Call, more_flags: u64, error: u32, text: &'static str) {
        let flags = call.kind.received() | more_flags;
        let completion = Completion { context: call.context, flags, ..Completion::default() };
        let failure = Some(Failure { error, excess: 0, text });
        self.report_late(Report { call, completion, source: None, failure });
    }

    /// Ends a call, or a poll, once no port is entered.
    #[inline(always)]
    pub fn leave(&mut self, shared: &Shared<E::Adapter>) {
        if self.has_more {
            self.end_more(shared);
        }
    }

    #[cold]
    #[inline(never)]
    fn end_more(&mut self, shared: &Shared<E::Adapter>) {
        if self.messenger.rails.lost.is_due() {
            self.end_lost(shared);
        }
        if self.buffers.are_due() {
            self.post_due(shared);
        }
        if !self.late.is_empty() {
            self.put_late(shared);
        }
        if self.others.is_due() {
            E::Others::take_due(self, shared);
        }
        self.has_more = self.messenger.rails.lost.is_due()
            || self.buffers.are_due()
            || !self.late.is_empty()
            || self.others.is_due()
            || !self.messenger.flow.turns.is_empty()
            || self.recording.is_some();
    }
}
