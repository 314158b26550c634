// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where an endpoint reports the end of its operations: completion queues, and counters.
//!
//! The provider makes a [`Reports`] when a program enables an endpoint. Called by `calls`, `lost.rs`, and the host's
//! one-sided operations. Grade: hot. Threads: the one that has entered the endpoint. Tests: `simulation`, `hw-tests`.

use std::sync::Arc;

use super::completion::{Completion, Failure};
use super::environment::{Counter, Queue};
use super::request::{Call, Hears};
use super::{Kind, fi};

/// A completion queue of an endpoint.
pub struct BoundQueue<Q> {
    /// The queue.
    pub queue: Arc<Q>,
    /// Whether only operations with `FI_COMPLETION` are reported (`FI_SELECTIVE_COMPLETION`).
    pub is_selective: bool,
}

/// The queues and counters of an endpoint.
pub struct Reports<Q, C> {
    /// The queue of what the endpoint starts.
    pub sends: Option<BoundQueue<Q>>,
    /// The queue of what it receives.
    pub receives: Option<BoundQueue<Q>>,
    /// With the operations that each counts.
    pub counters: Vec<(Arc<C>, u64)>,
}

impl<Q> Clone for BoundQueue<Q> {
    fn clone(&self) -> Self {
        BoundQueue { queue: Arc::clone(&self.queue), is_selective: self.is_selective }
    }
}

impl<Q, C> Clone for Reports<Q, C> {
    fn clone(&self) -> Self {
        let Reports { sends, receives, counters } = self;
        Reports { sends: sends.clone(), receives: receives.clone(), counters: counters.clone() }
    }
}

impl<Q, C> Default for Reports<Q, C> {
    fn default() -> Self {
        Reports { sends: None, receives: None, counters: Vec::new() }
    }
}

impl<Q: Queue, C: Counter> Reports<Q, C> {
    /// Returns what a call of this direction (`FI_SEND`, `FI_RECV`) with these flags reports, if it succeeds.
    pub fn call(&self, direction: u64, flags: u64, kind: Kind, context: usize) -> Call {
        let is_counted = self.counters.iter().any(|(_, counted)| counted & direction != 0);
        let hears = if is_counted { Hears::All } else { Hears::Queue };
        Call { context, kind, is_reported: self.is_reported(direction, flags), hears }
    }

    /// Reports a send that [`Call::is_plain`].
    #[inline(always)]
    pub fn sent(&self, completion: Completion) {
        push(self.sends.as_ref(), completion);
    }

    /// Reports a receive that [`Call::is_plain`].
    #[inline(always)]
    pub fn received(&self, completion: Completion) {
        push(self.receives.as_ref(), completion);
    }

    /// Whether the success of a send (`FI_SEND`) or receive (`FI_RECV`) with these flags is reported.
    #[inline]
    pub fn is_reported(&self, direction: u64, flags: u64) -> bool {
        self.queue(direction).is_some_and(|bound| !bound.is_selective || flags & fi::FI_COMPLETION != 0)
    }

    /// Returns the queue of the operations with these flags: those that this endpoint has started, or not.
    #[inline]
    fn queue(&self, flags: u64) -> Option<&BoundQueue<Q>> {
        if flags & (fi::FI_RECV | fi::FI_REMOTE_WRITE) != 0 { self.receives.as_ref() } else { self.sends.as_ref() }
    }

    /// Reports a message that was sent or received, or the result of a search. The program gets a buffer for several
    /// messages back, whether or not it asks for completions.
    pub fn completed(&self, call: Call, completion: Completion) {
        match call.hears {
            Hears::Nobody => return,
            Hears::All => self.count(completion.flags, false),
            Hears::Queue => {}
        }
        if call.is_reported || completion.flags & fi::FI_MULTI_RECV != 0 {
            push(self.queue(completion.flags), completion);
        }
    }

    /// Reports a send, a receive or a search that has failed.
    #[cold]
    pub fn failed(&self, call: Call, completion: Completion, failure: Failure<'_>) {
        match call.hears {
            Hears::Nobody => {}
            Hears::All => self.refused(completion, failure),
            Hears::Queue => self.push_failure(completion, failure),
        }
    }

    /// Reports a one-sided operation that has succeeded. `is_reported`: it is written to the queue.
    pub fn succeeded(&self, is_reported: bool, completion: Completion) {
        self.count(completion.flags, false);
        if is_reported {
            push(self.queue(completion.flags), completion);
        }
    }

    /// Counts a peer's operation that has no entry here, by its access to memory (`FI_REMOTE_*`): as a read if it
    /// returns what was there.
    pub fn accessed(&self, access: u64) {
        self.count(if access & fi::FI_REMOTE_READ != 0 { fi::FI_REMOTE_READ } else { access }, false);
    }

    /// Reports any operation that has failed.
    #[cold]
    pub fn refused(&self, completion: Completion, failure: Failure<'_>) {
        self.count(completion.flags, true);
        self.push_failure(completion, failure);
    }

    fn push_failure(&self, completion: Completion, failure: Failure<'_>) {
        if let Some(BoundQueue { queue, .. }) = self.queue(completion.flags) {
            queue.push_failure(completion, failure);
        }
    }

    fn count(&self, flags: u64, has_failed: bool) {
        let counters = self.counters.iter().filter(|(_, counted)| counted & flags != 0);
        counters.for_each(|(counter, _)| counter.count(has_failed));
    }
}

#[inline(always)]
fn push<Q: Queue>(bound: Option<&BoundQueue<Q>>, completion: Completion) {
    if let Some(BoundQueue { queue, .. }) = bound {
        queue.push(completion);
    }
}
