// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where an endpoint reports the end of its operations: completion queues, and counters.
//!
//! Made when the endpoint is enabled; called by `host/calls.rs`. Grade: hot. Threads: the one that has entered the
//! endpoint. Tests: `hw-tests`.

use std::sync::Arc;

use crate::cntr::Counter;
use crate::cq::{Completion, CompletionQueue, Failure};
use crate::host::request::Call;
use crate::sys;

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

    #[inline]
    fn queue(&self, direction: u64) -> Option<&BoundQueue> {
        if direction & sys::FI_SEND == 0 { self.receives.as_ref() } else { self.sends.as_ref() }
    }

    /// Reports an operation that has succeeded.
    #[inline(always)]
    pub(crate) fn completed(&self, call: Call, completion: &Completion) {
        if call.is_silent {
            return;
        }
        if !self.counters.is_empty() {
            self.count(completion.flags, false);
        }
        if call.is_reported
            && let Some(BoundQueue { queue, .. }) = self.queue(completion.flags)
        {
            queue.push(completion);
        }
    }

    /// Reports an operation that has failed.
    #[cold]
    pub(crate) fn failed(&self, call: Call, completion: Completion, failure: Failure) {
        if call.is_silent {
            return;
        }
        self.count(completion.flags, true);
        if let Some(BoundQueue { queue, .. }) = self.queue(completion.flags) {
            queue.push_failure(completion, failure);
        }
    }

    #[inline(never)]
    fn count(&self, flags: u64, has_failed: bool) {
        let direction = flags & (sys::FI_SEND | sys::FI_RECV);
        let counters = self.counters.iter().filter(|(_, counted)| counted & direction != 0);
        counters.for_each(|(counter, _)| counter.count(has_failed));
    }
}
