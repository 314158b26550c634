// SPDX-License-Identifier: MIT OR Apache-2.0
//! Closes a connection: its queue pair enters the error state, is drained, and only then destroyed.
//!
//! Until the queue pair is destroyed its requests keep their tokens, credits and bounce buffers: the adapter may still
//! read or write their memory. Its completions until then count: requests that were delivered before succeed. Called by
//! the other files of the port when a peer is forgotten or a connection replaced; `connect.rs` checks closing queue
//! pairs, `poll.rs` passes on markers. Setup grade. Threads: the port's. Tests: `tests/closings.rs`, `hw-tests`.

use super::Port;
use crate::counters::subtract;
use crate::transport::adapter::{Adapter, CompletionQueue as _, QueuePair as _};
use crate::transport::completion::{Completion, Failed};
use crate::transport::connections::closing::{ClosingQueue, Taken};
use crate::transport::connections::connection::Connection;
use crate::transport::work_request::{EndpointId, WrId};
use ibex_ffi::verbs::Status;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Longest time for draining a queue pair: an adapter needs far less to flush it.
const DRAINING: Duration = Duration::from_secs(1);

impl<A: Adapter> Port<A> {
    /// Gives up a peer's queue pair. Its waiting requests fail at once, its posted ones when the adapter flushes them.
    pub(super) fn drop_connection(&mut self, peer: EndpointId) {
        self.fail_waiting(peer);
        self.drop_successor(peer);
        let Some(connection) = self.connections.take(peer) else { return };
        if connection.is_made() {
            subtract(&self.counters.connections, 1);
        }
        self.close_queue_pair(peer, *connection);
    }

    /// Gives up the successor of a peer's connection, which may have received already. False if there is none.
    pub(super) fn drop_successor(&mut self, peer: EndpointId) -> bool {
        let Some(successor) = self.connections.take_successor(peer) else { return false };
        self.close_queue_pair(peer, *successor);
        true
    }

    fn close_queue_pair(&mut self, of: EndpointId, connection: Connection<A::QueuePair>) {
        // Noted late sends belong to queue pairs that are closing already.
        self.settle_late();
        let mut queue = connection.queue;
        // If even this fails, the queue pair is in error already, or the device is gone.
        let _ = queue.qp_mut().fail();
        self.closing.put(of, queue, self.adapter.now() + DRAINING);
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
            if let Some(queue) = self.closing.with(id.endpoint(), id.low()) {
                self.tx.succeeded(queue, (id.endpoint(), id.low()), &mut self.undelivered);
            }
        }
    }

    /// Handles a failed request of no connection, which may belong to a closing queue pair.
    #[cold]
    pub(super) fn failed_late(&mut self, id: WrId, status: Status) {
        self.settle_late();
        let Some(queue) = self.closing.with(id.endpoint(), id.low()) else { return };
        let token = self.tx.retire_failed(queue, id, &mut self.undelivered);
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
        for closing in self.closing.take_over(now, taken, self.cq.capacity()) {
            self.destroy(closing);
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
