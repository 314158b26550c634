// SPDX-License-Identifier: MIT OR Apache-2.0
//! Closes a connection: sets its queue pair to the error state, drains it, and only then destroys it.
//!
//! On some adapters, destroying a queue pair discards its unpolled completions, receives included, whose slots would
//! then be lost. So the port drains it first: the adapter flushes its last request, the end marker, after all others;
//! then the port polls the completion queue once to its end, because the adapter may flush receives later than sends.
//! Some adapters flush late or never, so each queue pair has a deadline ([`DRAINING`]).
//!
//! Until the queue pair is destroyed its requests keep their tokens, credits and bounce buffers: the adapter may still
//! read or write their memory. Its completions until then count: requests that were delivered before succeed. Called by
//! the other files of the port when a peer is forgotten or a connection replaced; `connect.rs` checks closing queue
//! pairs, `poll.rs` passes on markers. Grade: setup. Threads: the port's. Tests: `tests/closings.rs`, `hw-tests`.
//!
//! **Replaced connections**: the peer had given the connection up, and this process may have sent by it meanwhile. What
//! the peer did not get is lost, also a message without a token, which no one would miss. So the successor opens only
//! once the replaced queue pair is drained, and fails if a request is lost, unless that is a probe.
//!
//! **Parted peers** share no communicator with this process any more: it sends nothing to them, and they may end at any
//! time. Only missing acknowledgements show the end of such a peer. So the port probes it, at growing intervals, and
//! destroys its connection when no acknowledgement comes; if the two share a communicator again before, they use it
//! again. Tests: `tests/partings.rs`.

use super::Port;
use crate::counters::subtract;
use crate::transport::adapter::{Adapter, CompletionQueue as _, QueuePair};
use crate::transport::completion::{Completion, Failed};
use crate::transport::connections::connection::Connection;
use crate::transport::connections::failure::Cause;
use crate::transport::connections::probe::Parted;
use crate::transport::tx::request::Request;
use crate::transport::tx::send_queue::SendQueue;
use crate::transport::work_request::{EndpointId, WrId};
use ibex_ffi::verbs::Status;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Longest time for draining a queue pair: an adapter needs far less to flush it.
const DRAINING: Duration = Duration::from_secs(1);

/// How far the completion queue was polled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    pub(super) empty_polls: u64,
    pub(super) completions: u64,
}

impl Taken {
    /// Whether the port has since polled all entries that a queue of `capacity` entries held at `earlier`.
    fn is_past(&self, earlier: &Taken, capacity: u32) -> bool {
        self.empty_polls != earlier.empty_polls || self.completions >= earlier.completions + u64::from(capacity)
    }
}

#[derive(Debug)]
pub(super) struct ClosingQueue<Q> {
    /// Its former endpoint.
    pub(super) of: EndpointId,
    pub(super) queue: SendQueue<Q>,
    pub(super) is_marked: bool,
    /// Whether the endpoint's connection is its successor.
    is_replaced: bool,
    end: Duration,
    /// How far the port had polled when the marker came or the deadline passed.
    over: Option<Taken>,
}

impl<Q: QueuePair> ClosingQueue<Q> {
    /// Whether it was replaced, and has lost more than probes: the requests in flight, and the last `failed` retired
    /// ones.
    fn has_lost(&self, failed: u32) -> bool {
        self.is_replaced && self.queue.has_more_than_probes(failed)
    }
}

#[derive(Debug)]
pub(super) struct Closing<Q> {
    queues: Vec<ClosingQueue<Q>>,
}

impl<Q: QueuePair> Closing<Q> {
    pub(super) fn new() -> Self {
        Closing { queues: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Whether a queue pair of this number belonged to this endpoint, and is not destroyed.
    pub(super) fn has(&self, of: EndpointId, number: u32) -> bool {
        self.queues.iter().any(|closing| closing.of == of && closing.queue.qp().number() == number)
    }

    /// Returns the replaced queues of this endpoint.
    pub(super) fn replaced(&self, of: EndpointId) -> impl Iterator<Item = &SendQueue<Q>> {
        self.queues.iter().filter(move |closing| closing.of == of && closing.is_replaced).map(|closing| &closing.queue)
    }

    /// Whether a replaced queue pair of this endpoint may have lost requests.
    pub(super) fn may_lose(&self, of: EndpointId) -> bool {
        self.replaced(of).any(|queue| queue.has_more_than_probes(0))
    }

    /// Returns the closing queue in which a request of this number is in flight: at most one, and then no connection in
    /// use has that number in flight ([`SendQueue::succeed`]).
    pub(super) fn with(&mut self, of: EndpointId, number: u32) -> Option<&mut ClosingQueue<Q>> {
        let queue = |closing: &ClosingQueue<Q>| closing.of == of && closing.queue.has(number);
        self.queues.iter_mut().find(|closing| queue(closing))
    }

    /// Adds a queue pair in error that belonged to endpoint `of`, to be drained until `end`.
    pub(super) fn put(&mut self, of: EndpointId, queue: SendQueue<Q>, end: Duration, is_replaced: bool) {
        self.queues.push(ClosingQueue { of, queue, is_marked: false, is_replaced, end, over: None });
    }

    pub(super) fn unmarked(&mut self) -> impl Iterator<Item = &mut ClosingQueue<Q>> {
        self.queues.iter_mut().filter(|closing| !closing.is_marked)
    }

    /// Notes the end marker of the queue pair of this number. Returns its endpoint and its queue.
    pub(super) fn flushed(&mut self, qp_num: u32, taken: Taken) -> Option<(EndpointId, &mut SendQueue<Q>)> {
        let closing = self.queues.iter_mut().find(|closing| closing.queue.qp().number() == qp_num)?;
        closing.over.get_or_insert(taken);
        Some((closing.of, &mut closing.queue))
    }

    /// Returns the place of a queue pair that can be destroyed: all its completions were polled, or the deadline has
    /// passed and the completion queue was polled once more.
    fn over(&mut self, now: Duration, taken: Taken, capacity: u32) -> Option<usize> {
        for closing in self.queues.iter_mut().filter(|closing| closing.end <= now) {
            closing.over.get_or_insert(taken);
        }
        let is_over = |closing: &ClosingQueue<Q>| closing.over.is_some_and(|over| taken.is_past(&over, capacity));
        self.queues.iter().position(is_over)
    }

    /// Notes that the endpoint has no connection any more that a lost request could fail.
    fn drop_connection(&mut self, of: EndpointId) {
        self.queues.iter_mut().filter(|closing| closing.of == of).for_each(|closing| closing.is_replaced = false);
    }

    pub(super) fn take_all(&mut self) -> Vec<ClosingQueue<Q>> {
        std::mem::take(&mut self.queues)
    }
}

impl<A: Adapter> Port<A> {
    /// Gives up a peer's queue pair. Its waiting requests fail at once, its posted ones when the adapter flushes them.
    pub(super) fn drop_connection(&mut self, peer: EndpointId) {
        self.fail_waiting(peer);
        self.drop_successor(peer);
        self.closing.drop_connection(peer);
        let Some(connection) = self.connections.take(peer) else { return };
        self.close_connection(peer, *connection, false);
    }

    /// Closes a connection that has failed: later polls destroy its queue pair, also if the adapter does not flush it.
    /// Returns whether it is destroyed, and polls have reported all that came by it. Later requests to the peer are
    /// refused, as before. Setup.
    pub fn close_failed(&mut self, peer: EndpointId) -> bool {
        if self.connections.failure(peer).is_some() {
            self.drop_connection(peer);
        }
        let is_open = self.connections.get(peer).is_some() || self.closing.queues.iter().any(|queue| queue.of == peer);
        !is_open && self.undelivered.is_empty()
    }

    /// Gives up the successor of a peer's connection, which may have received already. False if there is none.
    pub(super) fn drop_successor(&mut self, peer: EndpointId) -> bool {
        let Some(successor) = self.connections.take_successor(peer) else { return false };
        self.close_connection(peer, *successor, false);
        true
    }

    /// Gives up a connection that is no longer in use.
    pub(super) fn close_connection(&mut self, of: EndpointId, connection: Connection<A::QueuePair>, is_replaced: bool) {
        if connection.is_made() {
            subtract(&self.counters.connections, 1);
        }
        // Noted late sends belong to queue pairs that are closing already.
        self.settle_late();
        let mut queue = connection.queue;
        // If even this fails, the queue pair is in error already, or the device is gone.
        let _ = queue.qp_mut().fail();
        self.closing.put(of, queue, self.adapter.now() + DRAINING, is_replaced);
        self.mark_ends();
        self.countdown = 1;
    }

    /// Posts end markers to the closing queue pairs that have none. If there is no room, later checks try again.
    fn mark_ends(&mut self) {
        for closing in self.closing.unmarked() {
            closing.is_marked = self.tx.post_end_marker(&mut closing.queue);
        }
    }

    /// Handles the end marker of this queue pair: requests before it that have not failed have succeeded.
    #[cold]
    pub(super) fn flushed(&mut self, qp_num: u32) {
        self.settle_late();
        let taken = self.taken();
        if let Some((to, queue)) = self.closing.flushed(qp_num, taken) {
            let last = queue.next().wrapping_sub(1);
            self.tx.succeeded(queue, (to, last), &mut self.undelivered);
        }
    }

    fn settle_late(&mut self) {
        for id in self.tx.take_late() {
            if let Some(closing) = self.closing.with(id.endpoint(), id.low()) {
                self.tx.succeeded(&mut closing.queue, (id.endpoint(), id.low()), &mut self.undelivered);
            }
        }
    }

    /// Handles a failed request that belongs to no connection in use, but maybe to a closing queue pair.
    #[cold]
    pub(super) fn failed_late(&mut self, id: WrId, status: Status) {
        self.settle_late();
        let Some(closing) = self.closing.with(id.endpoint(), id.low()) else { return };
        let token = self.tx.retire_failed(&mut closing.queue, id, &mut self.undelivered);
        // The reason goes before the failed request.
        if closing.has_lost(1) {
            self.fail(id.endpoint(), Cause::GivenUp);
        }
        if let Some(token) = token.filter(|token| token.0 != 0) {
            let outcome = Err(Failed { status, posted: true });
            self.undelivered.push(Completion::Request { token, to: id.endpoint(), outcome });
        }
    }

    #[cold]
    pub(super) fn look_after_closing(&mut self) {
        self.settle_late();
        self.mark_ends();
        let (now, taken) = (self.adapter.now(), self.taken());
        while let Some(place) = self.closing.over(now, taken, self.cq.capacity()) {
            let closing = &self.closing.queues[place];
            let of = closing.of;
            if closing.has_lost(0) {
                // The adapter has not flushed it in time.
                self.fail(of, Cause::GivenUp);
            }
            let closing = self.closing.queues.remove(place);
            self.destroy(closing);
            self.open_connection(of);
        }
    }

    /// Destroys all closing queue pairs now: the port ends, or its device is lost.
    pub(super) fn destroy_closing(&mut self) {
        self.settle_late();
        for closing in self.closing.take_all() {
            self.destroy(closing);
        }
    }

    fn destroy(&mut self, closing: ClosingQueue<A::QueuePair>) {
        let ClosingQueue { of, queue, is_marked, .. } = closing;
        self.tx.close(queue, of, is_marked, &mut self.undelivered);
    }

    fn taken(&self) -> Taken {
        Taken {
            empty_polls: self.counters.empty_polls.load(Ordering::Relaxed),
            completions: self.counters.completions.load(Ordering::Relaxed),
        }
    }
}

/// Peers that this process parts from.
impl<A: Adapter> Port<A> {
    /// Parts from a peer: the port does not report its failure, ends the connection when the peer has gone, and refuses
    /// requests to it until [`Port::rejoin`]. Setup.
    pub fn part(&mut self, peer: EndpointId) {
        if !self.connections.is_forgotten(peer) && self.connections.set_forgotten(peer, true) {
            self.parted.push(Parted::new(peer, self.adapter.now()));
        }
    }

    /// Takes a peer back that this process has parted from. Setup.
    pub fn rejoin(&mut self, peer: EndpointId) {
        self.parted.retain(|parted| parted.peer != peer);
        self.drop_failed(peer);
        self.connections.set_forgotten(peer, false);
    }

    /// Whether the connection to a parted peer is gone.
    pub fn has_gone(&self, peer: EndpointId) -> bool {
        self.connections.is_forgotten(peer) && self.connections.get(peer).is_none()
    }

    /// Probes the parted peers that are due, and destroys the connections to those that have gone.
    #[cold]
    pub(super) fn look_after_parted(&mut self, now: Duration) {
        let mut parted = std::mem::take(&mut self.parted);
        // [`Port::peer`] may have taken a peer back.
        parted.retain(|parted| self.connections.is_forgotten(parted.peer));
        parted.retain_mut(|parted| {
            if !self.drop_failed(parted.peer) && parted.is_due(now) {
                self.ask(parted.peer);
            }
            self.connections.get(parted.peer).is_some()
        });
        self.parted = parted;
    }

    /// Destroys the connection to a parted peer if it has failed. Returns whether it has.
    fn drop_failed(&mut self, peer: EndpointId) -> bool {
        let has_failed = self.connections.failure(peer).is_some();
        if has_failed {
            self.drop_connection(peer);
            self.connections.set_failure(peer, None);
        }
        has_failed
    }

    /// Asks a peer for an acknowledgement. `post_nop` would refuse it, because the upper layer has given the peer up.
    fn ask(&mut self, peer: EndpointId) {
        let Some(connection) = self.connections.get_mut(peer).filter(|connection| connection.is_made()) else { return };
        self.tx.wait(&mut connection.queue, peer, Request::NOTHING, &self.counters);
        self.work_backlog();
    }
}
