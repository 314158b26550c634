// SPDX-License-Identifier: MIT OR Apache-2.0
//! The backlog: requests queued for each peer, in order, without loss, and posted when there is room. `send.rs` queues
//! puts, gets and atomics here, the plugin queues sends, or a turn for sends that it keeps itself; `poll.rs` works the
//! backlog when there is room. While a request waits for a peer, all later ones queue behind it, except those of a
//! caller whose turn it is. Only this file checks whether a peer acknowledges nothing for long (`tx/send_window.rs`).
//! Grade: pending; it allocates. Threads: the port's. Tests: `port/tests`, `hw-tests`.

use super::{Port, Refused};
use crate::counters::{add, subtract};
use crate::transport::adapter::Adapter;
use crate::transport::completion::{Completion, Failed, Token};
use crate::transport::connections::connection::{Connection, Phase};
use crate::transport::connections::failure::Cause;
use crate::transport::tx::First;
use crate::transport::tx::request::{Operation, Request};
use crate::transport::watch;
use crate::transport::work_request::EndpointId;
use ibex_ffi::verbs::{LocalSpan, Status};
use std::sync::Arc;
use std::time::Duration;

/// Treatment of a message to a peer whose messages currently use another port (`divert.rs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenDiverted {
    /// Refuse it, so that another port can have it.
    Refuse,
    /// Let it wait here.
    Wait,
}

impl<A: Adapter> Port<A> {
    /// Queues a message of one or two spans. They are the adapter's until `token` comes back, which is as soon as the
    /// peer's adapter has the message, because the caller waits for it.
    ///
    /// # Errors
    /// [`Refused`] if the connection has failed, or the peer is diverted; then `token` does not come back.
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
        // The message may wait only for room, which there may be now.
        self.tx.expect_room();
        Ok(())
    }

    /// Queues a message in unregistered memory: the first `length` of `bytes`, at most
    /// [`crate::transport::Setup::bounce_size`]. Posts it at once if possible. `token` comes back as soon as the peer's
    /// adapter has the message.
    ///
    /// # Errors
    /// [`Refused`] if `length` is larger than that or than `bytes`, the connection has failed, or the peer is diverted;
    /// then `token` does not come back.
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
        self.post_waiting(to);
        Ok(())
    }

    /// Queues a turn of messages with this tag, which the caller keeps, unless one is queued. `token` comes back with a
    /// poll once the peer is connected, the requests before the turn are posted, and there is room. Then the caller
    /// posts its messages: after [`Port::begin_turn`] until there is no room and it queues the next turn, or until all
    /// are posted and it calls [`Port::end_turn`].
    ///
    /// # Errors
    /// [`Refused`] if the connection has failed. If it fails later, the turn is dropped with the messages that the port
    /// keeps ([`Port::keep_unposted`]), or `token` comes back as failed.
    #[cold]
    pub fn queue_turn(&mut self, to: EndpointId, tag: u8, token: Token) -> Result<(), Refused> {
        if !self.connections.get(to).is_some_and(|connection| connection.queue.awaits_turn()) {
            self.queue(to, Request { token, operation: Operation::Turn { tag } })?;
        }
        // The port may have room: it may have refused a message only because others waited.
        self.tx.expect_room();
        Ok(())
    }

    /// Lets the caller post to this peer in its turn, before the requests that wait, even if the peer is diverted.
    #[cold]
    pub fn begin_turn(&mut self, to: EndpointId) {
        if let Some(connection) = self.connections.get_mut(to).filter(|connection| connection.is_made()) {
            connection.queue.begin_turn();
        }
    }

    /// Ends the caller's turn; no message that it keeps waits for this peer any more.
    #[cold]
    pub fn end_turn(&mut self, to: EndpointId, token: Token) {
        if let Some(connection) = self.connections.get_mut(to)
            && connection.queue.end_turn()
        {
            let waiting = connection.queue.waiting();
            watch::unqueued(self.connections.rank(to), self.numbers(), token, waiting);
            self.tx.expect_room();
        }
    }

    fn may_queue(&self, to: EndpointId, when: WhenDiverted) -> Result<(), Refused> {
        if self.connections.is_diverted(to) && when == WhenDiverted::Refuse { Err(Refused) } else { Ok(()) }
    }

    /// Takes completions, checks connections and posts waiting requests, for a caller that has no room, or no buffer,
    /// and may not poll before it has some. `done` gets the token of each successful request, and consumes it by
    /// returning true. The next poll reports everything else, in order.
    #[cold]
    pub fn reap(&mut self, done: &mut dyn FnMut(Token) -> bool) {
        self.take_ahead(done);
        if self.tx.take_freed() {
            self.work_backlog();
        }
    }

    /// Like [`Port::reap`]. In addition, posts a signalled no-op on every connection whose last requests were
    /// unsignalled; its completion returns their tokens.
    #[cold]
    pub fn reclaim(&mut self, done: &mut dyn FnMut(Token) -> bool) {
        self.take_ahead(done);
        self.ask_for_completions(|_, _| true);
    }

    /// Posts a signalled no-op on every connection whose last requests were unsignalled, and for which `asks` holds.
    fn ask_for_completions(&mut self, asks: impl Fn(EndpointId, &Connection<A::QueuePair>) -> bool) {
        let wants = |connection: &Connection<_>| connection.is_made() && connection.queue.unsignalled() > 0;
        for to in self.connections.all() {
            if self.connections.get(to).is_some_and(|connection| wants(connection) && asks(to, connection)) {
                self.post_nop(to);
            }
        }
        self.work_backlog();
    }

    /// Whether a request to a peer for which `counts` holds waits, or was posted and is not acknowledged. Failed
    /// connections have none. A caller polls until this is false before it closes the port, if messages are to arrive
    /// of which it knows nothing any more.
    #[cold]
    pub fn is_unacknowledged(&mut self, counts: impl Fn(EndpointId) -> bool) -> bool {
        self.ask_for_completions(|to, connection| connection.queue.waiting() == 0 && counts(to));
        let owes = |connection: &Connection<A::QueuePair>| {
            let queue = &connection.queue;
            connection.phase() != Phase::Failed && (queue.waiting() > 0 || queue.in_flight() > 0)
        };
        self.connections.all().any(|to| counts(to) && self.connections.get(to).is_some_and(owes))
    }

    /// Queues a request that moves no bytes, for its completion. The caller works the backlog afterwards.
    fn post_nop(&mut self, to: EndpointId) {
        // Refused only if the connection has just failed, and then every token comes back anyway.
        let _ = self.queue(to, Request::NOTHING);
    }

    /// If probes are due, probes each peer that was idle since the last one. If it does not acknowledge, its connection
    /// fails.
    #[cold]
    pub(super) fn probe(&mut self, now: Duration) {
        if !self.probes.are_due(now) {
            return;
        }
        for peer in self.connections.all() {
            if self.connections.get(peer).is_some_and(Connection::is_idle) {
                self.post_nop(peer);
            }
        }
        self.work_backlog();
        for peer in self.connections.all() {
            if let Some(connection) = self.connections.get_mut(peer) {
                connection.was_probed();
            }
        }
    }

    /// Queues a request behind all that wait for this peer; begins a connection if there is none.
    #[cold]
    pub(super) fn queue(&mut self, to: EndpointId, request: Request) -> Result<(), Refused> {
        self.check(to)?;
        if self.connections.get(to).is_none() {
            self.begin_connection(to, false);
        }
        self.check(to)?;
        let Some(connection) = self.connections.get_mut(to) else { return Err(Refused) };
        let token = request.token;
        let begins = self.tx.wait(&mut connection.queue, to, request, &self.counters);
        self.countdown = self.countdown.min(self.look_interval);
        let waiting = connection.queue.waiting();
        if begins {
            watch::queued(self.connections.rank(to), self.numbers(), token, waiting);
        }
        Ok(())
    }

    #[cold]
    pub(super) fn work_backlog(&mut self) {
        let mut now = None;
        for _ in 0..self.tx.peers_waiting() {
            let Some(to) = self.tx.next_waiting() else { return };
            if let Some(connection) = self.connections.get_mut(to) {
                connection.queue.note_backlog(false);
            }
            if self.post_waiting(to) {
                let now = *now.get_or_insert_with(|| self.adapter.now());
                if let Some(connection) = self.connections.get_mut(to)
                    && self.tx.look(&mut connection.queue, now, &self.counters)
                {
                    let waiting = connection.queue.waiting();
                    watch::held_back(self.connections.rank(to), self.numbers(), waiting);
                }
                self.enlist(to);
            }
        }
    }

    pub(super) fn enlist(&mut self, to: EndpointId) {
        if let Some(connection) = self.connections.get_mut(to) {
            self.tx.enlist(&mut connection.queue, to);
        }
    }

    /// Posts the waiting requests of one peer, in order. Returns whether some are left.
    fn post_waiting(&mut self, to: EndpointId) -> bool {
        loop {
            let Some(connection) = self.connections.get_mut(to).filter(|connection| connection.is_made()) else {
                return false;
            };
            match self.tx.post_first(&mut connection.queue, to, &self.counters) {
                First::None => return false,
                First::Wait => return true,
                First::Posted(token, waiting) => {
                    watch::unqueued(self.connections.rank(to), self.numbers(), token, waiting);
                }
                First::Turn(token) => {
                    self.undelivered.push(Completion::Request { token, to, outcome: Ok(()) });
                    // The caller uses the room that is left.
                    return true;
                }
                First::Refused(error) if self.may_find_room(to, error) => return true,
                First::Refused(error) => {
                    self.fail(to, Cause::Post { errno: error.0 });
                    return false;
                }
            }
        }
    }

    pub(super) fn fail_waiting(&mut self, to: EndpointId) {
        self.give_back_waiting(to, |_| true);
    }

    /// Gives back, as unposted, the waiting requests of a peer for which `leaves` holds.
    pub(super) fn give_back_waiting(&mut self, to: EndpointId, leaves: impl Fn(&Request) -> bool) {
        let Some(connection) = self.connections.get_mut(to) else { return };
        let given_back = connection.queue.take_waiting(leaves);
        subtract(&self.counters.waiting, given_back.len() as u64);
        let rank = self.connections.rank(to);
        let mut waiting = given_back.len();
        for request in given_back {
            waiting -= 1;
            watch::unqueued(rank, self.numbers(), request.token, waiting);
            let Some(request) = self.kept.keep(to, request) else { continue };
            if request.token.0 != 0 {
                let outcome = Err(Failed { status: Status::FLUSHED, posted: false });
                self.undelivered.push(Completion::Request { token: request.token, to, outcome });
            }
        }
    }
}
