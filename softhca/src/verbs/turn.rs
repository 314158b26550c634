// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one thread at a time may use, from one verb to another: the cursor of an extended completion queue from
//! `ibv_start_poll` to `ibv_end_poll`, and the requests that a program builds from `ibv_wr_start` to `ibv_wr_complete`.
//!
//! Called by: `cq_ex`, `qp_ex`. Grade: hot: an exchange to take the turn, a store to give it. Threads: others wait.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// Something that belongs to whose turn it is.
#[derive(Default)]
pub(super) struct Turn<T> {
    what: UnsafeCell<T>,
    taken: AtomicBool,
}

impl<T> Turn<T> {
    /// It is the calling thread's turn when this returns.
    pub(super) fn take(&self) {
        // Acquire: sees what the previous holder wrote, with the Release in `give`.
        while self.taken.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    /// It is over.
    pub(super) fn give(&self) {
        self.taken.store(false, Ordering::Release);
    }

    /// What the turn is about.
    ///
    /// # Safety
    /// It is the caller's turn (or the program promised that one thread uses this at all), and it has no other reference
    /// to this.
    #[expect(clippy::mut_from_ref, reason = "the caller's turn makes it exclusive, as a lock's guard would")]
    pub(super) unsafe fn get(&self) -> &mut T {
        // SAFETY: the caller says that nobody else uses it.
        unsafe { &mut *self.what.get() }
    }
}
