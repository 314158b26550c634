// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events that threads had staged when they ended.
//!
//! A thread that ends can call no callback any more (the tool's own thread-local values may be gone), so it leaves its
//! events here, and the next thread that delivers takes them, each thread's in order. Its source goes to a new thread
//! only then. Called by `thread.rs`, which counts such a thread as one that stages until its events are delivered.
//!
//! Path: setup, once per thread that ends with staged events. Threads: any; a lock for a moment, never while a callback
//! runs. Tests: `tests/threads.rs`.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use super::source;
use super::source_info::SourceId;
use super::thread::Staged;

static ENDED: Mutex<VecDeque<EndedThread>> = Mutex::new(VecDeque::new());

/// The events that a thread left when it ended.
pub(super) struct EndedThread {
    /// At least one event.
    pub(super) staged: VecDeque<Staged>,
    /// Source and last timestamp of the thread, freed after the events; `None` if it shared its source.
    pub(super) source: Option<(SourceId, u64)>,
}

impl EndedThread {
    /// Leaves the events to the next thread that delivers.
    pub(super) fn leave(self) {
        ENDED.lock().unwrap_or_else(PoisonError::into_inner).push_back(self);
    }

    /// Takes the events of the thread that ended first. The caller delivers them; dropping the result frees the source.
    pub(super) fn take() -> Option<EndedThread> {
        ENDED.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

impl Drop for EndedThread {
    fn drop(&mut self) {
        if let Some((source, last)) = self.source {
            source::release(source, last);
        }
    }
}

/// Whether a thread that ended has left events.
pub(super) fn is_any() -> bool {
    !ENDED.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
}
