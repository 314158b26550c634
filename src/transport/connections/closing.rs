// SPDX-License-Identifier: MIT OR Apache-2.0
//! Closing queue pairs: in the error state and not yet destroyed, because the adapter still flushes their requests.
//!
//! On some adapters, destroying a queue pair discards its unpolled completions, receives included, whose slots would
//! then be lost. So it is drained first: its last request, the end marker, is flushed after all others; then the port
//! polls the completion queue once to its end, because receives may be flushed later than sends. Some adapters flush
//! late or never, so each queue pair has a deadline. Owned by the port, called by `port/closing.rs`. Setup grade.
//! Threads: the port's. Tests: `port/tests/closings.rs`.

use crate::transport::adapter::QueuePair;
use crate::transport::tx::send_queue::SendQueue;
use crate::transport::work_request::EndpointId;
use std::time::Duration;

/// How far the completion queue was polled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) empty_polls: u64,
    pub(crate) completions: u64,
}

impl Taken {
    /// Whether the port has since polled all entries that a queue of `capacity` entries held at `earlier`.
    fn is_past(&self, earlier: &Taken, capacity: u32) -> bool {
        self.empty_polls != earlier.empty_polls || self.completions >= earlier.completions + u64::from(capacity)
    }
}

#[derive(Debug)]
pub(crate) struct ClosingQueue<Q> {
    /// Its former endpoint.
    pub(crate) of: EndpointId,
    pub(crate) queue: SendQueue<Q>,
    pub(crate) is_marked: bool,
    end: Duration,
    /// How far the port had polled when the marker came or the deadline passed.
    over: Option<Taken>,
}

#[derive(Debug)]
pub(crate) struct Closing<Q> {
    queues: Vec<ClosingQueue<Q>>,
}

impl<Q: QueuePair> Closing<Q> {
    pub(crate) fn new() -> Self {
        Closing { queues: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Whether a queue pair of this number belonged to this endpoint, and is not destroyed.
    pub(crate) fn has(&self, of: EndpointId, number: u32) -> bool {
        self.queues.iter().any(|closing| closing.of == of && closing.queue.qp().number() == number)
    }

    /// Returns the closing queue in which a request of this number is in flight. At most one has it, and no connection
    /// in use ([`SendQueue::succeed`]).
    pub(crate) fn with(&mut self, of: EndpointId, number: u32) -> Option<&mut SendQueue<Q>> {
        let queue = |closing: &ClosingQueue<Q>| closing.of == of && closing.queue.has(number);
        self.queues.iter_mut().find(|closing| queue(closing)).map(|closing| &mut closing.queue)
    }

    /// Adds a queue pair in error that belonged to endpoint `of`, to be drained until `end`.
    pub(crate) fn put(&mut self, of: EndpointId, queue: SendQueue<Q>, end: Duration) {
        self.queues.push(ClosingQueue { of, queue, is_marked: false, end, over: None });
    }

    pub(crate) fn unmarked(&mut self) -> impl Iterator<Item = &mut ClosingQueue<Q>> {
        self.queues.iter_mut().filter(|closing| !closing.is_marked)
    }

    /// Notes the end marker of the queue pair of this number. Returns its endpoint and its queue.
    pub(crate) fn flushed(&mut self, qp_num: u32, taken: Taken) -> Option<(EndpointId, &mut SendQueue<Q>)> {
        let closing = self.queues.iter_mut().find(|closing| closing.queue.qp().number() == qp_num)?;
        closing.over.get_or_insert(taken);
        Some((closing.of, &mut closing.queue))
    }

    /// Removes the queue pairs that can be destroyed: all their completions were polled, or the deadline has passed and
    /// the completion queue was polled once more.
    pub(crate) fn take_over(&mut self, now: Duration, taken: Taken, capacity: u32) -> Vec<ClosingQueue<Q>> {
        for closing in self.queues.iter_mut().filter(|closing| closing.end <= now) {
            closing.over.get_or_insert(taken);
        }
        let is_over = |closing: &mut ClosingQueue<Q>| closing.over.is_some_and(|over| taken.is_past(&over, capacity));
        self.queues.extract_if(.., is_over).collect()
    }

    pub(crate) fn take_all(&mut self) -> Vec<ClosingQueue<Q>> {
        std::mem::take(&mut self.queues)
    }
}
