// SPDX-License-Identifier: MIT OR Apache-2.0
//! The send queue of a connection: its queue pair, how much is posted and done, and what waits behind it.
//!
//! Part of a connection; `tx.rs` posts to it and retires from it. The fields that a post or a retirement touches lie
//! together. Requests are numbered from 0; numbers wrap. Hot where marked. Tests: `tests.rs`.

use super::bounce::InUse;
use super::full_queue::QueueFull;
use super::posted::List;
use super::request::Request;
use super::send_window::{Held, SendWindow};
use crate::transport::adapter::{QueuePair, Work};
use crate::transport::work_request::Immediate;
use ibex_ffi::verbs::{PostError, Wr};
use std::collections::VecDeque;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct SendQueue<Q> {
    qp: Q,
    /// The number of the next request: of those posted since it was made, or since the first that it replaced was;
    /// wraps.
    posted: u32,
    /// Those known to be done.
    retired: u32,
    /// How many may be posted and not done.
    window: SendWindow,
    /// What `posted` may grow to; equal to it while nothing new may be posted. Kept by [`Self::set_limit`].
    limit: u32,
    /// What `posted` was when a request last asked for a completion.
    signalled: u32,
    /// What `posted` was after the last message of which that was noted ([`Self::note_message`]).
    messages: u32,
    /// How the peer names this endpoint in immediates; see [`Immediate`].
    named: u32,
    /// Whether new requests are posted.
    is_open: bool,
    /// Whether the port's backlog has this connection.
    in_backlog: bool,
    /// Tokens of what is posted.
    pub(super) tokens: List,
    /// The bounce buffers that posted requests use.
    pub(super) bounced: InUse,
    /// What could not be posted yet, in order. While there is any, everything new queues behind it.
    waiting: VecDeque<Request>,
    /// How often the adapter had no room.
    full: QueueFull,
}

impl<Q: QueuePair> SendQueue<Q> {
    /// Closed, over a queue pair that takes `depth` requests.
    pub(crate) fn new(qp: Q, depth: u32) -> Self {
        SendQueue {
            qp,
            posted: 0,
            retired: 0,
            window: SendWindow::new(depth),
            limit: 0,
            signalled: 0,
            messages: 0,
            named: Immediate::endpoint_bits(u32::MAX),
            is_open: false,
            in_backlog: false,
            tokens: List::new(),
            bounced: InUse::new(),
            waiting: VecDeque::new(),
            full: QueueFull::default(),
        }
    }

    pub(crate) fn qp(&self) -> &Q {
        &self.qp
    }

    pub(crate) fn qp_mut(&mut self) -> &mut Q {
        &mut self.qp
    }

    /// From now on the peer names this endpoint so.
    pub(crate) fn set_named(&mut self, endpoint_bits: u32) {
        self.named = endpoint_bits;
    }

    /// The immediate data of a message with this tag.
    #[inline]
    pub(crate) fn immediate(&self, tag: u8) -> u32 {
        Immediate::new(tag, self.named).0
    }

    /// Posts to the queue pair; [`super::Tx`] keeps the books.
    #[inline(always)]
    pub(crate) fn post(&mut self, wr: Wr, work: Work<'_>) -> Result<(), PostError> {
        self.qp.post(wr, work)
    }

    /// Lets new requests be posted, or not.
    pub(crate) fn set_open(&mut self, is_open: bool) {
        self.is_open = is_open;
        self.set_limit();
    }

    /// Works out anew how far requests may be posted. To be called after every change of what it is made of, so that a
    /// post has one comparison to make.
    #[inline]
    pub(super) fn set_limit(&mut self) {
        let open = self.is_open && self.waiting.is_empty() && !self.is_full();
        self.limit = if open { self.retired.wrapping_add(self.window.size()) } else { self.posted };
    }

    /// Whether a new request has no room, or may not be posted. Hot.
    #[inline]
    pub(crate) fn is_shut(&self) -> bool {
        self.posted == self.limit
    }

    /// Whether the adapter has as many requests as it takes, or as the peer may have unacknowledged. Hot.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.in_flight() >= self.window.size()
    }

    /// Looks `now` whether the peer, for which requests wait, takes what is posted. It is held back where it does not.
    pub(super) fn look(&mut self, signal_interval: u32, now: Duration) -> Held {
        let held = self.window.look(self.retired, self.is_completion_due(), signal_interval, now);
        self.set_limit();
        held
    }

    /// The number of the next request. Hot.
    #[inline]
    pub(crate) fn next(&self) -> u32 {
        self.posted
    }

    /// The request numbered [`Self::next`] was posted. Hot.
    #[inline]
    pub(super) fn was_posted(&mut self, signalled: bool) {
        self.posted = self.posted.wrapping_add(1);
        if signalled {
            self.signalled = self.posted;
        }
    }

    /// Requests the adapter has.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        self.posted.wrapping_sub(self.retired)
    }

    /// Whether the request of this number is in flight.
    pub(crate) fn has(&self, number: u32) -> bool {
        number.wrapping_sub(self.retired) < self.in_flight()
    }

    /// Requests posted since one last asked for a completion.
    #[inline]
    pub(crate) fn unsignalled(&self) -> u32 {
        self.posted.wrapping_sub(self.signalled)
    }

    /// Requests posted since it was made; wraps.
    pub(crate) fn posted(&self) -> u32 {
        self.posted
    }

    /// Whether a request is under way that asked for a completion.
    pub(crate) fn is_completion_due(&self) -> bool {
        self.signalled != self.retired
    }

    /// The request numbered `through` and all before it are done. Returns how many that makes; `None` where the number
    /// is of none that is in flight.
    #[inline]
    pub(super) fn retire(&mut self, through: u32) -> Option<u32> {
        let retired = through.wrapping_add(1);
        let done = retired.wrapping_sub(self.retired);
        if done > self.in_flight() {
            return None;
        }
        self.retired = retired;
        self.set_limit();
        Some(done)
    }

    /// The last request that was posted was a message.
    #[inline]
    pub(crate) fn note_message(&mut self) {
        self.messages = self.posted;
    }

    /// Whether a message that was noted is not known to be done, where the last `failed` that are said to be are not.
    pub(crate) fn has_messages_beyond(&self, failed: u32) -> bool {
        // Both distances are from the end, as the last message may be any number of requests ago: numbers that wrap are
        // compared only with those in flight. After 2^32 requests without a message it counts as in flight once more,
        // for as many as are: a failure just then is told of a message that was delivered.
        self.posted.wrapping_sub(self.messages) < self.in_flight() + failed
    }

    /// Whether a request for which the adapter had no room `now` is to be tried again.
    pub(crate) fn may_find_room(&mut self, now: Duration) -> bool {
        // Of requests that asked for no completion none comes.
        let is_completion_due = self.is_completion_due();
        if is_completion_due {
            self.full = QueueFull::default();
        }
        is_completion_due || self.full.note(self.posted, now)
    }

    /// As if so many more requests, none of which was a message, had been posted and were done.
    #[cfg(test)]
    pub(crate) fn skip(&mut self, requests: u32) {
        for number in [&mut self.posted, &mut self.retired, &mut self.signalled] {
            *number = number.wrapping_add(requests);
        }
        self.set_limit();
    }

    /// How many requests wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Puts a request behind all that wait.
    pub(super) fn wait(&mut self, request: Request) {
        self.waiting.push_back(request);
        self.set_limit();
    }

    /// Takes the first that waits, to try it.
    pub(super) fn take_first(&mut self) -> Option<Request> {
        self.waiting.pop_front()
    }

    /// Puts it back.
    pub(super) fn put_back(&mut self, request: Request) {
        self.waiting.push_front(request);
    }

    /// Takes all that wait for which `leaves` holds, in order.
    pub(crate) fn take_waiting(&mut self, leaves: impl Fn(&Request) -> bool) -> Vec<Request> {
        let (taken, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting).into_iter().partition(leaves);
        self.waiting = rest.into();
        self.set_limit();
        taken
    }

    /// Takes over what waits for `old`, which it replaces, and its place in the backlog. To be called before anything
    /// is posted.
    pub(crate) fn succeed(&mut self, old: &mut SendQueue<Q>) {
        // Completions of the old queue pair may still come, with the same endpoint: no number of theirs may be in
        // flight here.
        self.posted = old.posted.wrapping_add(1);
        (self.retired, self.signalled, self.messages) = (self.posted, self.posted, self.posted);
        self.waiting = std::mem::take(&mut old.waiting);
        self.in_backlog = old.in_backlog;
        self.set_limit();
    }

    /// Destroys the queue pair, and gives up what its requests used: their tokens and bounce buffers.
    pub(super) fn destroy(self) -> (List, InUse) {
        // The queue pair goes first: what is flushed with it was the adapter's until now.
        drop(self.qp);
        (self.tokens, self.bounced)
    }

    /// Notes whether the backlog has this connection. Returns what was noted before.
    pub(crate) fn note_backlog(&mut self, in_backlog: bool) -> bool {
        std::mem::replace(&mut self.in_backlog, in_backlog)
    }
}
