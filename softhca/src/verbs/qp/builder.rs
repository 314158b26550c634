// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requests that a program builds by the extended interface of a queue pair, until it has them posted.
//! Grade: hot: the buffers grow to a program's largest batch and stay. Threads: from `wr_start` to `wr_complete` or
//! `wr_abort` the builder belongs to one thread; others wait.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::engine::{SendWr, Sge};
use crate::sys::ibv_ah;

/// A request being built.
pub(super) struct Request {
    pub(super) wr: SendWr<'static>,
    pub(super) ah: *mut ibv_ah,
    /// Where its pieces are in `Building::pieces`.
    pub(super) pieces: (usize, usize),
}

/// The requests since `wr_start`.
#[derive(Default)]
pub(super) struct Building {
    pub(super) requests: Vec<Request>,
    /// For inline data, `addr` is a place in `inline` until the requests are completed.
    pub(super) pieces: Vec<Sge>,
    pub(super) inline: Vec<u8>,
    pub(super) error: c_int,
}

/// What a queue pair has for building requests.
#[derive(Default)]
pub(super) struct Builder {
    building: UnsafeCell<Building>,
    taken: AtomicBool,
}

impl Builder {
    /// From now on the calling thread builds; waits until no other does.
    pub(super) fn take(&self) {
        // Acquire: sees what the previous holder left in the buffers, with the Release in `give`.
        while self.taken.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    /// What is being built.
    ///
    /// # Safety
    /// The caller has taken the builder, and has no other reference to this.
    #[expect(clippy::mut_from_ref, reason = "the caller's word makes it exclusive, as a lock's guard would")]
    pub(super) unsafe fn building(&self) -> &mut Building {
        // SAFETY: the caller has taken the builder, and has no other reference to this.
        unsafe { &mut *self.building.get() }
    }

    /// Forgets the requests and lets other threads build.
    ///
    /// # Safety
    /// The caller has taken the builder, and gives it up here.
    pub(super) unsafe fn give(&self) {
        // SAFETY: the caller has taken the builder, and uses what is being built no more.
        let building = unsafe { self.building() };
        building.requests.clear();
        building.pieces.clear();
        building.inline.clear();
        building.error = 0;
        self.taken.store(false, Ordering::Release);
    }
}
