// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a program is in reading a completion queue by the extended interface.
//! Grade: hot. Threads: from `start_poll` to `end_poll` the cursor belongs to one thread; others wait.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::engine::Wc;

/// Where a program is in reading a queue, and the completion it is at.
pub(super) struct Cursor {
    pub(super) at: UnsafeCell<Wc>,
    taken: AtomicBool,
    single_threaded: bool,
}

impl Cursor {
    /// Before the first completion. `single_threaded`: the program promises that one thread reads.
    pub(super) fn new(single_threaded: bool) -> Cursor {
        Cursor { at: UnsafeCell::new(Wc::default()), taken: AtomicBool::new(false), single_threaded }
    }

    pub(super) fn take(&self) {
        if self.single_threaded {
            return;
        }
        // Acquire: sees what the previous holder wrote to `at`, with the Release in `give`.
        while self.taken.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    pub(super) fn give(&self) {
        if !self.single_threaded {
            self.taken.store(false, Ordering::Release);
        }
    }
}
