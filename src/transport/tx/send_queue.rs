// SPDX-License-Identifier: MIT OR Apache-2.0
//! The send queue of a connection: its queue pair, the numbers of its requests, and the requests that wait. `tx` posts
//! to it and retires from it. The fields that a post or a retirement touches lie together. Requests are numbered from
//! 0; numbers wrap. Grade: hot where marked, else pending. Tests: `tests.rs`, and below.

use super::bounce::InUse;
use super::posted::List;
use super::request::Request;
use super::send_window::{Held, SendWindow};
use crate::transport::adapter::{QueuePair, Work};
use crate::transport::work_request::Immediate;
use ibex_ffi::verbs::{PostError, Wr};
use std::collections::VecDeque;
use std::time::Duration;

/// The port gives up a send queue that keeps answering `ENOMEM` (full) although no completion is due, after more than
/// this many answers in [`LEAST_TIME`] or longer. A queue that is really full gets room by a completion; requests in
/// this one would wait for ever.
pub(crate) const ATTEMPTS: u32 = 1000;
pub(crate) const LEAST_TIME: Duration = Duration::from_secs(3);

/// Count of consecutive "queue full" answers, without a posted request in between.
#[derive(Debug, Default)]
struct QueueFull {
    /// Number of requests posted when the count began.
    posted: u32,
    count: u32,
    since: Duration,
}

impl QueueFull {
    /// Counts one more answer at `now`. False if there were too many for too long.
    fn note(&mut self, posted: u32, now: Duration) -> bool {
        if self.count == 0 || self.posted != posted {
            *self = QueueFull { posted, count: 0, since: now };
        }
        self.count += 1;
        self.count <= ATTEMPTS || now.saturating_sub(self.since) < LEAST_TIME
    }
}

/// The turn of a caller that keeps messages for the peer itself ([`crate::transport::Port::queue_turn`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It keeps no messages.
    None,
    /// Its turn is one of the waiting requests.
    Queued,
    /// It may post: its turn has come and has not ended.
    Taken,
}

#[derive(Debug)]
pub(crate) struct SendQueue<Q> {
    qp: Q,
    /// Number of the next request. A successor continues the numbers of the queue that it replaces.
    posted: u32,
    /// Number of the oldest request in flight.
    retired: u32,
    window: SendWindow,
    /// Limit of `posted`; equal to it while no new request may be posted. Set by [`Self::set_limit`].
    limit: u32,
    /// Value of `posted` when a request last asked for a completion.
    signalled: u32,
    /// Value of `posted` after the last noted message ([`Self::note_message`]).
    messages: u32,
    /// The last requests, as far as they are probes: number of the first one, and of the one after the last.
    probes: (u32, u32),
    /// Bits by which the peer names this endpoint in immediates; see [`Immediate`].
    named: u32,
    is_open: bool,
    in_backlog: bool,
    pub(super) turn: Turn,
    pub(super) tokens: List,
    pub(super) bounced: InUse,
    /// Requests that could not be posted yet, in order. While there are any, every new request goes behind them.
    waiting: VecDeque<Request>,
    full: QueueFull,
}

impl<Q: QueuePair> SendQueue<Q> {
    /// Makes a closed send queue, over a queue pair that takes `depth` requests.
    pub(crate) fn new(qp: Q, depth: u32) -> Self {
        SendQueue {
            qp,
            posted: 0,
            retired: 0,
            window: SendWindow::new(depth),
            limit: 0,
            signalled: 0,
            messages: 0,
            probes: (0, 0),
            named: Immediate::endpoint_bits(u32::MAX),
            is_open: false,
            in_backlog: false,
            turn: Turn::None,
            tokens: List::default(),
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

    pub(crate) fn set_named(&mut self, endpoint_bits: u32) {
        self.named = endpoint_bits;
    }

    #[inline]
    pub(crate) fn immediate(&self, tag: u8) -> u32 {
        Immediate::new(tag, self.named).0
    }

    /// Posts to the queue pair; [`super::Tx`] counts.
    #[inline(always)]
    pub(crate) fn post(&mut self, wr: Wr, work: Work<'_>) -> Result<(), PostError> {
        self.qp.post(wr, work)
    }

    pub(crate) fn set_open(&mut self, is_open: bool) {
        self.is_open = is_open;
        self.set_limit();
    }

    /// Recomputes the limit of `posted`, after every change of its inputs, so that a post makes only one comparison.
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

    /// Whether as many requests are in flight as the adapter takes, or as the peer may leave unacknowledged. Hot.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.in_flight() >= self.window.size()
    }

    /// Checks whether a peer with waiting requests acknowledges the posted ones. Holds it back if it has not for long.
    pub(super) fn look(&mut self, signal_interval: u32, now: Duration) -> Held {
        let held = self.window.look(self.retired, self.is_completion_due(), signal_interval, now);
        self.set_limit();
        held
    }

    /// Returns the number of the next request. Hot.
    #[inline]
    pub(crate) fn next(&self) -> u32 {
        self.posted
    }

    /// Counts the request numbered [`Self::next`] as posted. Hot.
    #[inline]
    pub(super) fn was_posted(&mut self, signalled: bool) {
        self.posted = self.posted.wrapping_add(1);
        if signalled {
            self.signalled = self.posted;
        }
    }

    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        self.posted.wrapping_sub(self.retired)
    }

    pub(crate) fn has(&self, number: u32) -> bool {
        number.wrapping_sub(self.retired) < self.in_flight()
    }

    /// Number of requests posted since the last one that asked for a completion.
    #[inline]
    pub(crate) fn unsignalled(&self) -> u32 {
        self.posted.wrapping_sub(self.signalled)
    }

    pub(crate) fn posted(&self) -> u32 {
        self.posted
    }

    /// Whether a request in flight has asked for a completion.
    pub(crate) fn is_completion_due(&self) -> bool {
        self.signalled != self.retired
    }

    /// Retires the request numbered `through` and all before it. Returns their number, `None` if it is not in flight.
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

    #[inline]
    pub(crate) fn note_message(&mut self) {
        self.messages = self.posted;
    }

    /// Whether a noted message may be undelivered. The last `failed` retired requests count as undelivered.
    pub(crate) fn has_messages_beyond(&self, failed: u32) -> bool {
        // Counted back from the end, because the last message may be any number of requests ago and numbers wrap. After
        // 2^32 requests without a message it seems to be in flight once more: a failure just then reports a delivered
        // message as possibly lost.
        self.posted.wrapping_sub(self.messages) < self.in_flight() + failed
    }

    /// Notes that the last request moves no bytes.
    pub(super) fn note_probe(&mut self) {
        let number = self.posted.wrapping_sub(1);
        self.probes = (if self.probes.1 == number { self.probes.0 } else { number }, self.posted);
    }

    /// Whether a request that moves bytes is in flight. The last `failed` retired requests count as in flight.
    pub(crate) fn has_more_than_probes(&self, failed: u32) -> bool {
        let (first, end) = self.probes;
        let probes = if end == self.posted { end.wrapping_sub(first) } else { 0 };
        self.in_flight() + failed > probes
    }

    /// Whether to try a request again for which the adapter had no room `now`.
    pub(crate) fn may_find_room(&mut self, now: Duration) -> bool {
        // Requests that asked for no completion make no room.
        let is_completion_due = self.is_completion_due();
        if is_completion_due {
            self.full = QueueFull::default();
        }
        is_completion_due || self.full.note(self.posted, now)
    }

    /// Simulates that this many further requests, none of them a message, were posted and retired.
    #[cfg(any(test, feature = "stand-in"))]
    pub(crate) fn skip(&mut self, requests: u32) {
        for number in [&mut self.posted, &mut self.retired, &mut self.signalled] {
            *number = number.wrapping_add(requests);
        }
        self.set_limit();
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Queues a request. Returns whether it begins a wait: a turn that directly follows the caller's last one does not.
    pub(super) fn wait(&mut self, request: Request) -> bool {
        let begins = !request.is_turn() || std::mem::replace(&mut self.turn, Turn::Queued) == Turn::None;
        self.waiting.push_back(request);
        self.set_limit();
        begins
    }

    pub(crate) fn awaits_turn(&self) -> bool {
        self.turn == Turn::Queued
    }

    /// Lets the caller post in its turn, before the requests that wait, even if new ones are diverted.
    pub(crate) fn begin_turn(&mut self) {
        if self.turn == Turn::Taken && !self.is_full() {
            self.limit = self.retired.wrapping_add(self.window.size());
        }
    }

    /// Ends the caller's turn. Returns false if it had none.
    pub(crate) fn end_turn(&mut self) -> bool {
        let ends = self.turn == Turn::Taken;
        if ends {
            self.turn = Turn::None;
            self.set_limit();
        }
        ends
    }

    pub(super) fn take_first(&mut self) -> Option<Request> {
        self.waiting.pop_front()
    }

    pub(super) fn put_back(&mut self, request: Request) {
        self.waiting.push_front(request);
    }

    /// Takes all waiting requests for which `leaves` holds, in order.
    pub(crate) fn take_waiting(&mut self, leaves: impl Fn(&Request) -> bool) -> Vec<Request> {
        let (taken, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting).into_iter().partition(leaves);
        if taken.iter().any(Request::is_turn) {
            self.turn = Turn::None;
        }
        self.waiting = rest.into();
        self.set_limit();
        taken
    }

    /// Takes over the waiting requests of `old`, and its place in the backlog, before anything is posted.
    pub(crate) fn succeed(&mut self, old: &mut SendQueue<Q>) {
        // Completions of the old queue pair may still come for this endpoint: its numbers must not be in flight here.
        self.posted = old.posted.wrapping_add(1);
        (self.retired, self.signalled, self.messages) = (self.posted, self.posted, self.posted);
        self.waiting = std::mem::take(&mut old.waiting);
        (self.in_backlog, self.turn) = (old.in_backlog, old.turn);
        self.set_limit();
    }

    /// Destroys the queue pair, and returns the tokens and bounce buffers of its requests.
    pub(super) fn destroy(self) -> (List, InUse) {
        // The adapter may use the bounce buffers until then.
        drop(self.qp);
        (self.tokens, self.bounced)
    }

    /// Notes whether the connection is in the backlog. Returns the former value.
    pub(crate) fn note_backlog(&mut self, in_backlog: bool) -> bool {
        std::mem::replace(&mut self.in_backlog, in_backlog)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_gives_a_queue_up_after_many_answers_and_some_time_and_not_after_either_alone() {
        let moment = Duration::from_secs(7);
        let mut often = QueueFull::default();
        assert!((0..10 * ATTEMPTS).all(|_| often.note(5, moment)), "no time has passed");
        assert!(!often.note(5, moment + LEAST_TIME));
        let mut long = QueueFull::default();
        assert!((0..ATTEMPTS).all(|second| long.note(5, moment + Duration::from_secs(u64::from(second)))));
        assert!(!long.note(5, moment + Duration::from_secs(u64::from(ATTEMPTS))));
    }

    #[test]
    fn a_request_that_was_posted_in_between_resets_the_count() {
        let mut answers = QueueFull::default();
        let at = |second| Duration::from_secs(second);
        assert!((0..=ATTEMPTS).all(|_| answers.note(u32::MAX, at(1))));
        assert!(answers.note(0, at(100)));
        assert!((0..ATTEMPTS - 1).all(|_| answers.note(0, at(200))));
        assert!(!answers.note(0, at(200)));
    }
}
