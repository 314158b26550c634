// SPDX-License-Identifier: MIT OR Apache-2.0
//! An object as programs hold it: C's structure, which their pointer is to, and behind it what is this library's own,
//! of which a part may be one thread's at a time from one verb to another.
//!
//! Called by: every object of verbs. Grade: `of` is hot (an addition), and so is a turn: an exchange to take it, a
//! store to give it. Threads: any. A program gives pointers that this library gave out for an object of that kind, and
//! gives one up by the verb that ends the object: each caller says so. No inline function of verbs.h writes into C's
//! structures. This library writes, once a program knows the object, a queue pair's `state`, a queue's `cqe` and a
//! channel's `refcnt`, atomically, since several threads may call the verb; the `status` and `wr_id` of an extended
//! queue, as the holder of its cursor; a window's key, as who binds it, and a region, as who registers it anew, which
//! man pages leave to one thread. References are to what is behind only.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::engine::Result;
use crate::verbs::error::number;

/// C's structure `P`, which is all that the program sees, and what this library keeps of the object.
#[repr(C)]
pub(crate) struct Handle<P, T> {
    public: P,
    own: T,
}

impl<P, T> Handle<P, T> {
    pub(crate) fn hand_out(public: P, own: T) -> *mut P {
        Box::into_raw(Box::new(Handle { public, own })).cast()
    }

    /// What is behind a program's pointer.
    ///
    /// # Safety
    /// `object` is from [`Self::hand_out`] of the same type, and not given up.
    #[inline]
    pub(crate) unsafe fn of<'a>(object: *mut P) -> &'a T {
        // SAFETY: the caller says that the object is one of these, and lives.
        unsafe { &(*object.cast::<Self>()).own }
    }

    /// Ends the object, if `end` can; the error number otherwise.
    ///
    /// # Safety
    /// As for [`Self::of`]; the program gives the object up if this succeeds.
    pub(crate) unsafe fn end(object: *mut P, end: impl FnOnce(&T) -> Result<()>) -> c_int {
        // SAFETY: the caller says that the object is one of these, and lives.
        let result = end(unsafe { Self::of(object) });
        if result.is_ok() {
            // SAFETY: made by Box in `hand_out`; the program gives it up, and nothing here refers to it any more.
            drop(unsafe { Box::from_raw(object.cast::<Self>()) });
        }
        number(result)
    }
}

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
