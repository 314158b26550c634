// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events that were still staged when their thread ended. An ending thread must not call callbacks, because the tool's
//! thread-local values may be gone. So `thread.rs` leaves its events here, and the next thread that delivers takes
//! them, in each thread's order. Only then may a new thread reuse its source. Path: setup. Threads: any; a lock for a
//! moment, never while a callback runs. Tests: `tests/threads.rs`.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use super::source;
use super::source_info::SourceId;
use super::thread::Staged;

static ENDED: Mutex<VecDeque<EndedThread>> = Mutex::new(VecDeque::new());

pub(super) struct EndedThread {
    /// At least one event.
    pub(super) staged: VecDeque<Staged>,
    /// Source and last timestamp of the thread, freed after the events; `None` if it shared its source.
    pub(super) source: Option<(SourceId, u64)>,
}

impl EndedThread {
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

pub(super) fn is_any() -> bool {
    !ENDED.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
}
