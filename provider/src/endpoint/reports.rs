// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where an endpoint reports the end of its operations: completion queues, and counters.
//!
//! Made when the endpoint is enabled; called by `host/calls.rs` and `rma`. Grade: hot. Threads: the one inside the
//! domain. Tests: `hw-tests`.

use std::sync::Arc;

use crate::cntr::Counter;
use crate::cq::{Completion, CompletionQueue, Failure};
use crate::host::Kind;
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
    /// Returns what a call of this direction (`FI_SEND`, `FI_RECV`) with these flags reports, if it succeeds.
    pub(crate) fn call(&self, direction: u64, flags: u64, kind: Kind, context: usize) -> Call {
        let is_counted = self.counters.iter().any(|(_, counted)| counted & direction != 0);
        let hears = if is_counted { Hears::All } else { Hears::Queue };
        Call { context, kind, is_reported: self.is_reported(direction, flags), hears }
    }

    /// Reports a send that [`Call::is_plain`].
    #[inline(always)]
    pub(crate) fn sent(&self, completion: Completion) {
        push(self.sends.as_ref(), completion);
    }

    /// Reports a receive that [`Call::is_plain`].
    #[inline(always)]
    pub(crate) fn received(&self, completion: Completion) {
        push(self.receives.as_ref(), completion);
    }

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
    pub(crate) fn completed(&self, call: Call, completion: Completion) {
        match call.hears {
            Hears::Nobody => return,
            Hears::All => self.count(completion.flags, false),
            Hears::Queue => {}
        }
        if call.is_reported || completion.flags & sys::FI_MULTI_RECV != 0 {
            push(self.queue(completion.flags), completion);
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
    pub(crate) fn succeeded(&self, is_reported: bool, completion: Completion) {
        self.count(completion.flags, false);
        if is_reported {
            push(self.queue(completion.flags), completion);
        }
    }

    /// Counts a peer's operation that has no entry here, by its access to memory (`FI_REMOTE_*`): as a read if it
    /// returns what was there.
    pub(crate) fn accessed(&self, access: u64) {
        self.count(if access & sys::FI_REMOTE_READ != 0 { sys::FI_REMOTE_READ } else { access }, false);
    }

    /// Reports any operation that has failed.
    #[cold]
    pub(crate) fn refused(&self, completion: Completion, failure: Failure<'_>) {
        self.count(completion.flags, true);
        self.push_failure(completion, failure);
    }

    fn push_failure(&self, completion: Completion, failure: Failure<'_>) {
        if let Some(BoundQueue { queue, .. }) = self.queue(completion.flags) {
            // SAFETY: D1: as in `push`.
            unsafe { queue.push_failure(completion, failure) };
        }
    }

    fn count(&self, flags: u64, has_failed: bool) {
        let counters = self.counters.iter().filter(|(_, counted)| counted & flags != 0);
        counters.for_each(|(counter, _)| counter.count(has_failed));
    }
}

#[inline(always)]
fn push(bound: Option<&BoundQueue>, completion: Completion) {
    if let Some(BoundQueue { queue, .. }) = bound {
        // SAFETY: D1: only a `State` reports, and a thread that uses one is inside the domain, which is that of the
        // queue (`fi_ep_bind`).
        unsafe { queue.push(completion) };
    }
}
