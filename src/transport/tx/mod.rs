// SPDX-License-Identifier: MIT OR Apache-2.0
//! The send side of a port: which requests may be posted, which are posted, and which wait.
//!
//! Owns the credits of the completion queue (a request is posted only if its completion has room), the tokens of posted
//! requests, the bounce buffers, and the order in which connections with waiting requests are served. Each connection
//! has a [`SendQueue`]. Owned by the port; called by `port/send.rs`, `port/waiting.rs` and `port/poll.rs`. Grade: hot
//! where marked, else pending. Threads: the port's. Tests: `tx/tests.rs`.

pub(super) mod bounce;
mod posted;
pub(super) mod request;
pub(super) mod send_queue;
pub(super) mod send_window;

#[cfg(test)]
mod tests;

use self::bounce::Bounce;
use self::posted::Posted;
use self::request::{NOTHING, Operation, Request};
use self::send_queue::{SendQueue, Turn};
use super::adapter::{QueuePair, SendSlots, Work};
use super::completion::{Batch, Completion, Failed, TakesRequests, Token, Undelivered};
use super::work_request::{EndpointId, WrId};
use crate::counters::{Counters, add, subtract};
use ibex_ffi::verbs::{InlineSpan, PostError, Status, Wr};
use std::collections::VecDeque;
use std::time::Duration;

/// With fewer send slots than this, every copied send asks for a completion, so that its slot comes back soon.
const FEW_SLOTS: u64 = 256;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    Posted,
    /// No room, or not connected: the request waits.
    Wait,
    Refused(PostError),
}

/// How a request is posted. A trait, so that it is inlined into the caller.
pub(super) trait Post<Q> {
    fn post(self, queue: &mut SendQueue<Q>, wr: Wr) -> Result<(), PostError>;
}

impl<Q: QueuePair> Post<Q> for Work<'_> {
    #[inline(always)]
    fn post(self, queue: &mut SendQueue<Q>, wr: Wr) -> Result<(), PostError> {
        queue.post(wr, self)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    Always,
    /// Only after enough unsignalled requests.
    Sometimes,
}

/// Result for the first request that waits for a peer.
pub(super) enum First {
    None,
    /// Its token, and the number of requests that still wait.
    Posted(Token, usize),
    /// The turn with this token: the caller has it now.
    Turn(Token),
    Wait,
    /// It is the first in the queue again.
    Refused(PostError),
}

pub(super) struct Limits {
    /// Entries of the completion queue that are for sends.
    pub(super) credits: u32,
    /// One of this many requests asks for a completion.
    pub(super) signal_interval: u32,
    /// Most send slots; 0: no limit.
    pub(super) send_slots: u64,
    pub(super) max_inline: u32,
}

#[derive(Debug)]
pub(super) struct Tx<S> {
    /// Work requests that may still be posted before the completion queue could overflow.
    credits: u32,
    /// With fewer credits than this, every request asks for a completion.
    scarce_credits: u32,
    signal_interval: u32,
    max_inline: u32,
    /// Whether each copied send asks for a completion, because send slots are few.
    prompt_copies: bool,
    /// Whether room was made since the backlog was last worked.
    is_freed: bool,
    posted: Posted,
    bounce: Bounce<S>,
    backlog: VecDeque<EndpointId>,
    /// Successful sends that belong to no connection, but to a closing queue pair ([`Self::take_late`]).
    late: Vec<WrId>,
}

impl<S: SendSlots> Tx<S> {
    pub(super) fn new(limits: &Limits, slots: S) -> Self {
        Tx {
            credits: limits.credits,
            scarce_credits: limits.credits / 2,
            signal_interval: limits.signal_interval,
            max_inline: limits.max_inline,
            prompt_copies: (1..FEW_SLOTS).contains(&limits.send_slots),
            is_freed: false,
            posted: Posted::with_capacity(1024),
            bounce: Bounce::new(slots),
            backlog: VecDeque::new(),
            late: Vec::new(),
        }
    }

    #[cfg(test)]
    pub(super) fn credits(&self) -> u32 {
        self.credits
    }

    /// Hot.
    #[inline]
    pub(super) fn max_inline(&self) -> usize {
        self.max_inline as usize
    }

    /// When a copied send asks for a completion. Hot.
    #[inline]
    pub(super) fn signal_of_copy(&self, prompt: bool) -> Signal {
        if prompt || self.prompt_copies { Signal::Always } else { Signal::Sometimes }
    }

    /// Whether a new request would be posted now. Hot.
    #[inline]
    pub(super) fn has_room<Q: QueuePair>(&self, queue: &SendQueue<Q>) -> bool {
        self.credits > 0 && !queue.is_shut()
    }

    /// Posts a new request through `post` if there is room, and notes `token`. The hot path of every operation.
    #[inline(always)]
    pub(super) fn post<Q: QueuePair>(
        &mut self,
        queue: &mut SendQueue<Q>,
        to: EndpointId,
        (signal, token): (Signal, Token),
        counters: &Counters,
        post: impl Post<Q>,
    ) -> Attempt {
        if queue.is_shut() || self.credits == 0 {
            return Attempt::Wait;
        }
        self.post_now(queue, to, (signal, token), counters, post)
    }

    #[inline(always)]
    fn post_now<Q: QueuePair>(
        &mut self,
        queue: &mut SendQueue<Q>,
        to: EndpointId,
        (signal, token): (Signal, Token),
        counters: &Counters,
        post: impl Post<Q>,
    ) -> Attempt {
        let sequence = queue.next();
        // Every request does when credits are scarce, so that they come back.
        let signalled = signal == Signal::Always
            || queue.unsignalled() + 1 >= self.signal_interval
            || self.credits < self.scarce_credits;
        match post.post(queue, Wr { id: WrId::send(to, sequence).0, signalled }) {
            Ok(()) => {
                queue.was_posted(signalled);
                self.credits -= 1;
                if token.0 != 0 {
                    self.posted.push(&mut queue.tokens, sequence, token);
                }
                add(&counters.posted, 1);
                if signalled {
                    add(&counters.signalled, 1);
                }
                Attempt::Posted
            }
            Err(error) => Attempt::Refused(error),
        }
    }

    /// Retires a successful send and every request before it on its connection: their tokens come back in the batch,
    /// unless `takes` consumes them. Hot.
    #[inline(never)]
    pub(super) fn retire<Q: QueuePair>(
        &mut self,
        queue: &mut SendQueue<Q>,
        id: WrId,
        (batch, undelivered): (&mut Batch, &mut Undelivered),
        takes: &mut impl TakesRequests,
    ) {
        if !self.free_through(queue, id.low()) {
            return self.is_late(id);
        }
        while let Some((_, token)) = self.posted.pop_through(&mut queue.tokens, id.low()) {
            if !takes.takes_request(token) {
                undelivered.deliver(batch, Completion::Request { token, to: id.endpoint(), outcome: Ok(()) });
            }
        }
    }

    /// Retires the request numbered `through` and all before it, but leaves their tokens. False if it is not in flight.
    #[inline]
    fn free_through<Q: QueuePair>(&mut self, queue: &mut SendQueue<Q>, through: u32) -> bool {
        let Some(done) = queue.retire(through) else { return false };
        self.credits += done;
        self.is_freed |= done > 0;
        if !queue.bounced.is_empty() {
            self.bounce.take_back(&mut queue.bounced, through);
        }
        true
    }

    /// Retires a failed send, and as successes the requests before it on its connection. Returns its token (0 if it has
    /// none), or `None` if the request belongs to a queue pair that is gone.
    #[cold]
    pub(super) fn retire_failed<Q: QueuePair>(
        &mut self,
        queue: &mut SendQueue<Q>,
        id: WrId,
        undelivered: &mut Undelivered,
    ) -> Option<Token> {
        if !self.free_through(queue, id.low()) {
            return None;
        }
        let mut failed = Token(0);
        while let Some((sequence, token)) = self.posted.pop_through(&mut queue.tokens, id.low()) {
            if sequence == id.low() {
                failed = token;
            } else {
                undelivered.push(Completion::Request { token, to: id.endpoint(), outcome: Ok(()) });
            }
        }
        Some(failed)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn is_late(&mut self, id: WrId) {
        self.late.push(id);
    }

    pub(super) fn take_late(&mut self) -> Vec<WrId> {
        std::mem::take(&mut self.late)
    }

    /// Retires, as successes, the requests of a closing queue pair up to the one numbered `through`.
    pub(super) fn succeeded<Q: QueuePair>(
        &mut self,
        queue: &mut SendQueue<Q>,
        (to, through): (EndpointId, u32),
        undelivered: &mut Undelivered,
    ) {
        if !self.free_through(queue, through) {
            return;
        }
        while let Some((_, token)) = self.posted.pop_through(&mut queue.tokens, through) {
            undelivered.push(Completion::Request { token, to, outcome: Ok(()) });
        }
    }

    /// Posts the end marker, the last request of a queue pair in error, which is flushed after all others. False if
    /// there is no room for it.
    pub(super) fn post_end_marker<Q: QueuePair>(&mut self, queue: &mut SendQueue<Q>) -> bool {
        if self.credits == 0 {
            return false;
        }
        let id = WrId::end_marker(queue.qp().number());
        let is_posted = queue.post(Wr { id: id.0, signalled: true }, NOTHING).is_ok();
        self.credits -= u32::from(is_posted);
        is_posted
    }

    /// Destroys a send queue with its queue pair. Posted requests that are not known to have succeeded complete as
    /// failed. `is_marked`: an end marker is among them, which completes nothing.
    pub(super) fn close<Q: QueuePair>(
        &mut self,
        queue: SendQueue<Q>,
        to: EndpointId,
        is_marked: bool,
        undelivered: &mut Undelivered,
    ) {
        let (last, posted) = (queue.next().wrapping_sub(1), queue.in_flight() + u32::from(is_marked));
        let (mut tokens, mut bounced) = queue.destroy();
        self.credits += posted;
        self.bounce.take_back(&mut bounced, last);
        while let Some((_, token)) = self.posted.pop_through(&mut tokens, last) {
            let outcome = Err(Failed { status: Status::FLUSHED, posted: true });
            undelivered.push(Completion::Request { token, to, outcome });
        }
    }

    /// Queues a request. Returns whether it begins a wait: a turn that directly follows the caller's last one does not.
    #[cold]
    pub(super) fn wait<Q: QueuePair>(
        &mut self,
        queue: &mut SendQueue<Q>,
        to: EndpointId,
        request: Request,
        counters: &Counters,
    ) -> bool {
        let begins = queue.wait(request);
        add(&counters.queued, u64::from(begins));
        add(&counters.waiting, 1);
        self.enlist(queue, to);
        begins
    }

    pub(super) fn enlist<Q: QueuePair>(&mut self, queue: &mut SendQueue<Q>, to: EndpointId) {
        if !queue.note_backlog(true) {
            self.backlog.push_back(to);
        }
    }

    /// Checks whether a peer with waiting requests acknowledges the posted ones, and counts the time in which it does
    /// not. Returns whether it is held back from now on (`send_window.rs`).
    pub(super) fn look<Q: QueuePair>(&self, queue: &mut SendQueue<Q>, now: Duration, counters: &Counters) -> bool {
        let held = queue.look(self.signal_interval, now);
        add(&counters.held_back, u64::from(held.begins));
        add(&counters.held_back_time, held.time.as_micros() as u64);
        held.begins
    }

    #[inline]
    pub(super) fn peers_waiting(&self) -> usize {
        self.backlog.len()
    }

    pub(super) fn next_waiting(&mut self) -> Option<EndpointId> {
        self.backlog.pop_front()
    }

    /// Makes the next poll work the backlog, because there may be room.
    pub(super) fn expect_room(&mut self) {
        self.is_freed = true;
    }

    /// Whether to work the backlog; resets the answer until more room is made. Hot.
    #[inline]
    pub(super) fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.is_freed)
    }

    /// Posts the first waiting request, if there is room, even if the peer's new requests are held back or diverted.
    pub(super) fn post_first<Q: QueuePair>(
        &mut self,
        queue: &mut SendQueue<Q>,
        to: EndpointId,
        counters: &Counters,
    ) -> First {
        let Some(request) = queue.take_first() else { return First::None };
        let token = request.token;
        let attempt = if queue.is_full() || self.credits == 0 {
            Attempt::Wait
        } else {
            self.attempt(queue, to, &request, counters)
        };
        let outcome = match attempt {
            Attempt::Posted => {
                subtract(&counters.waiting, 1);
                if request.is_turn() {
                    queue.turn = Turn::Taken;
                    First::Turn(token)
                } else {
                    if request.message_tag().is_some() {
                        queue.note_message();
                    } else if request.is_nothing() {
                        queue.note_probe();
                    }
                    First::Posted(token, queue.waiting())
                }
            }
            Attempt::Wait => First::Wait,
            Attempt::Refused(error) => First::Refused(error),
        };
        if matches!(outcome, First::Wait | First::Refused(_)) {
            queue.put_back(request);
        }
        queue.set_limit();
        outcome
    }

    fn attempt<Q: QueuePair>(
        &mut self,
        queue: &mut SendQueue<Q>,
        to: EndpointId,
        request: &Request,
        counters: &Counters,
    ) -> Attempt {
        let asked = (Signal::Always, request.token);
        let work = match &request.operation {
            Operation::SendBytes { tag, bytes, length } => {
                let bytes = &bytes[..*length as usize];
                if bytes.len() > self.max_inline() {
                    return self.attempt_bounced(queue, to, (*tag, bytes), request.token, counters);
                }
                Work::SendInline { header: bytes.into(), payload: InlineSpan::EMPTY, immediate: queue.immediate(*tag) }
            }
            Operation::Send { tag, spans, count } => {
                Work::Send { spans: &spans[..usize::from(*count)], immediate: queue.immediate(*tag) }
            }
            Operation::PutInline { bytes, remote } => Work::WriteInline { bytes: (&**bytes).into(), remote: *remote },
            Operation::Other(work) => *work,
            Operation::Turn { .. } => return Attempt::Posted,
        };
        self.post_now(queue, to, asked, counters, work)
    }

    fn attempt_bounced<Q: QueuePair>(
        &mut self,
        queue: &mut SendQueue<Q>,
        to: EndpointId,
        (tag, bytes): (u8, &[u8]),
        token: Token,
        counters: &Counters,
    ) -> Attempt {
        let Some((slot, span)) = self.bounce.fill(bytes) else { return Attempt::Wait };
        let (sequence, immediate) = (queue.next(), queue.immediate(tag));
        let work = Work::Send { spans: &[span], immediate };
        let attempt = self.post_now(queue, to, (Signal::Always, token), counters, work);
        match attempt {
            Attempt::Posted => queue.bounced.push_back((sequence, slot)),
            _ => self.bounce.give_back(slot),
        }
        attempt
    }
}
