// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where an endpoint reports the end of its operations: completion queues, and counters.
//!
//! Made when the endpoint is enabled; called by `host/calls.rs` and `rma`. Grade: hot. Threads: the one that has
//! entered the endpoint. Tests: `hw-tests`.

use std::sync::Arc;

use crate::cntr::Counter;
use crate::cq::{Completion, CompletionQueue, Failure};
use crate::host::request::{Call, Hears};
use crate::sys;
use crate::wait::Wait;

/// A completion queue of an endpoint.
#[derive(Clone)]
pub(crate) struct BoundQueue {
    pub(super) queue: Arc<CompletionQueue>,
    /// Whether only operations with `FI_COMPLETION` are reported (`FI_SELECTIVE_COMPLETION`).
    pub(super) is_selective: bool,
}

/// The queues and counters of an endpoint.
#[derive(Clone, Default)]
pub(crate) struct Reports {
    pub(super) sends: Option<BoundQueue>,
    pub(super) receives: Option<BoundQueue>,
    /// With the operations that each counts.
    pub(super) counters: Vec<(Arc<Counter>, u64)>,
}

impl Reports {
    /// Whether the success of a send (`FI_SEND`) or receive (`FI_RECV`) with these flags is reported.
    #[inline]
    pub(crate) fn is_reported(&self, direction: u64, flags: u64) -> bool {
        self.queue(direction).is_some_and(|bound| !bound.is_selective || flags & sys::FI_COMPLETION != 0)
    }

    /// Returns the wait objects of its queues and counters, some of them twice.
    pub(super) fn waits(&self) -> impl Iterator<Item = &Wait> {
        let queues = self.sends.iter().chain(&self.receives).filter_map(|bound| bound.queue.wait.as_ref());
        queues.chain(self.counters.iter().filter_map(|(counter, _)| counter.wait.as_ref()))
    }

    /// Returns the queue of the operations with these flags: those that this endpoint has started, or not.
    #[inline]
    fn queue(&self, flags: u64) -> Option<&BoundQueue> {
        if flags & (sys::FI_RECV | sys::FI_REMOTE_WRITE) != 0 { self.receives.as_ref() } else { self.sends.as_ref() }
    }

    /// Reports a message that was sent or received, or the result of a search. The program gets a buffer for several
    /// messages back, whether or not it asks for completions.
    #[inline(always)]
    pub(crate) fn completed(&self, call: Call, completion: &Completion) {
        match call.hears {
            Hears::Nobody => return,
            Hears::All if !self.counters.is_empty() => self.count(completion.flags, false),
            Hears::All | Hears::Queue => {}
        }
        if call.is_reported || completion.flags & sys::FI_MULTI_RECV != 0 {
            self.push(completion);
        }
    }

    /// Reports a send, a receive or a search that has failed.
    #[cold]
    pub(crate) fn failed(&self, call: Call, completion: Completion, failure: Failure<'_>) {
        match call.hears {
            Hears::Nobody => {}
            Hears::All => self.refused(completion, failure),
            Hears::Queue => self.push_failure(completion, failure),
        }
    }

    /// Reports a one-sided operation that has succeeded. `is_reported`: it is written to the queue.
    pub(crate) fn succeeded(&self, is_reported: bool, completion: &Completion) {
        self.count(completion.flags, false);
        if is_reported {
            self.push(completion);
        }
    }

    /// Reports any operation that has failed.
    #[cold]
    pub(crate) fn refused(&self, completion: Completion, failure: Failure<'_>) {
        self.count(completion.flags, true);
        self.push_failure(completion, failure);
    }

    #[inline(always)]
    fn push(&self, completion: &Completion) {
        if let Some(BoundQueue { queue, .. }) = self.queue(completion.flags) {
            queue.push(completion);
        }
    }

    fn push_failure(&self, completion: Completion, failure: Failure<'_>) {
        if let Some(BoundQueue { queue, .. }) = self.queue(completion.flags) {
            queue.push_failure(completion, failure);
        }
    }

    #[inline(never)]
    fn count(&self, flags: u64, has_failed: bool) {
        let counters = self.counters.iter().filter(|(_, counted)| counted & flags != 0);
        counters.for_each(|(counter, _)| counter.count(has_failed));
    }
}
