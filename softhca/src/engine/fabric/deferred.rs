// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work that must wait until the thread that finds it holds no shared lock, because it takes other locks.
//!
//! Called by: whoever finds such work (`defer`), and `service::deferred`, which does it. Grade: `any` is hot (a load).
//! Thread rule: any thread; its own mutex.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

/// One thing to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deferred {
    /// Flush the sends of this queue pair (its index), which is in the error state.
    Flush(u32),
    /// This completion queue (its offset) has overrun: tell its owner, stop its queue pairs.
    Overrun(u64),
    /// This process (its token) was found dead.
    Bury(u32),
    /// Try again the sends of this queue pair (its index).
    Retry(u32),
}

/// What is to be done.
#[derive(Default)]
pub(crate) struct DeferredWork {
    list: Mutex<Vec<Deferred>>,
    any: AtomicBool,
}

impl DeferredWork {
    pub(crate) fn add(&self, work: Deferred) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if !list.contains(&work) {
            list.push(work);
        }
        self.any.store(true, Ordering::Release);
    }

    /// Whether there is any.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// All of it, which the caller does.
    pub(crate) fn take(&self) -> Vec<Deferred> {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut *list)
    }
}
