// SPDX-License-Identifier: MIT OR Apache-2.0
//! What waits to be posted: queued for each peer, in order, without loss, and posted when there is room.
//!
//! `send.rs` queues puts, gets and atomics here, the plugin sends; `poll.rs` works the backlog when completions have made
//! room. While anything waits for a peer, all that follows queues behind it. Pending grade: it may allocate. One thread
//! at a time (`&mut Port`). Tests: the device tests in `hw-tests`.

use crate::bounce::Bounce;
use crate::counters::{add, subtract};
use crate::endpoint::{Operation, Request};
use crate::event::{EndpointId, Event, Failed, Token};
use crate::events;
use crate::failure::Cause;
use crate::port::Port;
use crate::send::{Attempt, Refused, Signal};
use ibex_ffi::verbs::{InlineSpan, LocalSpan, Status};
use std::sync::Arc;

/// What becomes of a message to a peer whose messages go by another port for now (`divert.rs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenDiverted {
    /// It is refused: another port can have it.
    Refuse,
    /// It waits here.
    Wait,
}

impl Port {
    /// Lets a message of one or two spans wait until it can be sent. They are the adapter's until `token` comes back, as soon
    /// as the peer's adapter has the message: who waits for a message to go wants to hear of it.
    ///
    /// # Errors
    /// [`Refused`] when the connection has failed, or the peer is diverted; `token` does not come back then.
    #[cold]
    pub fn queue_send(
        &mut self,
        to: EndpointId,
        tag: u8,
        spans: &[LocalSpan],
        token: Token,
        when: WhenDiverted,
    ) -> Result<(), Refused> {
        self.may_queue(to, when)?;
        let first = spans.first().copied().unwrap_or(LocalSpan::EMPTY);
        let second = spans.get(1).copied().unwrap_or(LocalSpan::EMPTY);
        let count = spans.len().min(2) as u8;
        self.queue(to, Request { token, operation: Operation::Send { tag, spans: [first, second], count } })?;
        self.count_send(spans);
        // It may wait here for room alone.
        self.freed = true;
        Ok(())
    }

    /// Lets a message wait that is in memory of no registration: the first `length` of `bytes`, at most
    /// [`crate::port::Setup::bounce_size`]. It goes at once where it can. `token` comes back as soon as the peer's adapter has the
    /// message.
    ///
    /// # Errors
    /// [`Refused`] when there are more bytes than that or fewer in `bytes`, the connection has failed, or the peer is diverted;
    /// `token` does not come back then.
    #[cold]
    pub fn queue_bytes(
        &mut self,
        to: EndpointId,
        tag: u8,
        (bytes, length): (Arc<[u8]>, u32),
        token: Token,
        when: WhenDiverted,
    ) -> Result<(), Refused> {
        self.may_queue(to, when)?;
        if length > self.bounce_size || length as usize > bytes.len() {
            return Err(Refused);
        }
        self.queue(to, Request { token, operation: Operation::SendBytes { tag, bytes, length } })?;
        add(&self.counters.copy_sent, 1);
        add(&self.counters.copy_bytes, u64::from(length));
        // What is left of it stays in the backlog.
        self.work_pending(to);
        Ok(())
    }

    fn may_queue(&self, to: EndpointId, when: WhenDiverted) -> Result<(), Refused> {
        let is_diverted = self.endpoints.get(to.index() as usize).is_some_and(|endpoint| endpoint.diverted);
        if is_diverted && when == WhenDiverted::Refuse { Err(Refused) } else { Ok(()) }
    }

    /// For a caller that finds no room, or no buffer, and may not come back to poll before it has some: takes completions,
    /// moves connections on and posts what waits. `done` is shown the token of each request that has succeeded; where it
    /// answers true the token is its own from then on. Everything else is told by the next poll, in order.
    #[cold]
    pub fn reap(&mut self, done: &mut dyn FnMut(Token) -> bool) {
        self.take_ahead(done);
        if std::mem::take(&mut self.freed) {
            self.work_backlog();
        }
    }

    /// As [`Port::reap`], and asks every connection with requests of which nobody asked a completion for one, so that their
    /// tokens come back.
    #[cold]
    pub fn reclaim(&mut self, done: &mut dyn FnMut(Token) -> bool) {
        self.take_ahead(done);
        for index in 0..self.endpoints.len() as u32 {
            let to = EndpointId::from_index(index);
            let wanting = self.connection(to).is_some_and(|c| c.is_made() && c.unsignalled() > 0);
            if wanting {
                self.post_nothing(to);
            }
        }
        self.work_backlog();
    }

    /// Queues a request that moves no byte, for its completion. The backlog is to be worked after it.
    pub(crate) fn post_nothing(&mut self, to: EndpointId) {
        // Refused only where the connection has just failed, and then every token comes back anyway.
        let _ = self.queue(to, Request { token: Token(0), operation: Operation::Nothing });
    }

    /// Puts a request behind all that waits for this peer, and begins to connect where nothing does yet.
    #[cold]
    pub(crate) fn queue(&mut self, to: EndpointId, request: Request) -> Result<(), Refused> {
        self.check(to)?;
        if self.connection(to).is_none() {
            self.begin_connection(to);
        }
        self.check(to)?;
        let Some(connection) = self.connection_mut(to) else { return Err(Refused) };
        let token = request.token;
        connection.pending.push_back(request);
        connection.set_limit();
        if events::is_any_active() {
            self.watch_queued(to, token);
        }
        add(&self.counters.queued, 1);
        add(&self.counters.waiting, 1);
        self.enlist(to);
        Ok(())
    }

    /// Notes that the peer's waiting requests shall be looked at.
    pub(crate) fn enlist(&mut self, to: EndpointId) {
        let Some(connection) = self.connection_mut(to) else { return };
        if !connection.in_backlog {
            connection.in_backlog = true;
            self.backlog.push_back(to);
        }
    }

    /// Posts what waits, peer by peer, as far as there is room. Pending grade.
    #[cold]
    pub(crate) fn work_backlog(&mut self) {
        for _ in 0..self.backlog.len() {
            let Some(to) = self.backlog.pop_front() else { return };
            if let Some(connection) = self.connection_mut(to) {
                connection.in_backlog = false;
            }
            if self.work_pending(to) {
                self.enlist(to);
            }
        }
    }

    /// Posts what waits for one peer, in order. True while something is left.
    fn work_pending(&mut self, to: EndpointId) -> bool {
        loop {
            let Some(connection) = self.connection_mut(to) else { return false };
            if !connection.is_made() {
                return false;
            }
            // Taken out whole, so that the connection is open to the attempt, and put back with what could not go.
            let mut pending = std::mem::take(&mut connection.pending);
            connection.open();
            let Some(request) = pending.pop_front() else {
                connection.set_limit();
                return false;
            };
            let (token, waiting) = (request.token, pending.len());
            let attempt = self.attempt_request(to, &request);
            let posted = matches!(attempt, Attempt::Posted);
            if !posted {
                pending.push_front(request);
            }
            if let Some(connection) = self.connection_mut(to) {
                connection.pending = pending;
                connection.set_limit();
            }
            match attempt {
                Attempt::Posted => {
                    subtract(&self.counters.waiting, 1);
                    if events::is_any_active() {
                        self.watch_unqueued(to, token, waiting);
                    }
                }
                Attempt::Wait => return true,
                Attempt::Broken(error) => {
                    self.fail(to, Cause::Post { errno: error.0 });
                    return false;
                }
            }
        }
    }

    /// Posts a message from memory of no registration: inside the work request, or by a bounce buffer.
    pub(crate) fn attempt_bytes(&mut self, to: EndpointId, tag: u8, bytes: &[u8], token: Token) -> Attempt {
        if bytes.len() <= self.attributes.max_inline as usize {
            return self.attempt(to, Signal::Always, token, |c, wr| {
                c.qp.send_inline(wr, bytes.into(), InlineSpan::EMPTY, c.immediate(tag))
            });
        }
        if !self.has_room(to) {
            return Attempt::Wait;
        }
        let Some(filled) = self.bounce.fill(bytes) else { return Attempt::Wait };
        let spans = [filled.span];
        let attempt = self.attempt(to, Signal::Always, token, |c, wr| c.qp.send(wr, &spans, c.immediate(tag)));
        match self.connection_mut(to) {
            Some(connection) if matches!(attempt, Attempt::Posted) => {
                Bounce::posted(&filled, connection.posted.wrapping_sub(1), &mut connection.bounced);
            }
            _ => self.bounce.give_back(&filled),
        }
        attempt
    }

    /// Fails what waits for a peer: it never reached the adapter.
    pub(crate) fn fail_pending(&mut self, to: EndpointId) {
        let Some(connection) = self.connection_mut(to) else { return };
        let pending = std::mem::take(&mut connection.pending);
        connection.set_limit();
        subtract(&self.counters.waiting, pending.len() as u64);
        if events::is_any_active() {
            for (index, request) in pending.iter().enumerate() {
                self.watch_unqueued(to, request.token, pending.len() - 1 - index);
            }
        }
        for request in pending.into_iter().filter(|request| request.token.0 != 0) {
            let outcome = Err(Failed { status: Status::FLUSHED, posted: false });
            self.overflow.push_back(Event::Completed { token: request.token, to, outcome }.into());
        }
    }
}
