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

    /// Reports the end of an operation.
    #[inline]
    pub(crate) fn put(&self, call: Call, completion: Completion, failure: Option<Failure>) {
        if call.is_silent {
            return;
        }
        let direction = completion.flags & (sys::FI_SEND | sys::FI_RECV);
        for (counter, counted) in &self.counters {
            if counted & direction != 0 {
                counter.count(failure.is_some());
            }
        }
        let Some(BoundQueue { queue, .. }) = self.queue(direction) else { return };
        match failure {
            Some(failure) => queue.push_failure(completion, failure),
            None if call.is_reported => queue.push(completion),
            None => {}
        }
    }
}
