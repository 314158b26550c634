// SPDX-License-Identifier: MIT OR Apache-2.0
//! An object as programs hold it: C's structure, to which their pointer is, and behind it this library's own part, some
//! of which belongs to one thread from one verb to another (`Turn`). Called by: every object of verbs. Grade: `of` is
//! hot (an addition), and so is a turn: an exchange to take it, a store to give it. Threads: any. Callers rely on rule
//! V. No inline function of verbs.h writes into C's structures. Once a program knows the object, this library writes a
//! queue pair's `state`, a queue's `cqe` and a channel's `refcnt`, atomically, since several threads may call the verb;
//! the `status` and `wr_id` of an extended queue, as the holder of its cursor; a window's key and a region when they
//! are bound or registered anew, which man pages leave to one thread. References are to the own part only.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::engine::Result;
use crate::verbs::number;

/// C's structure `P`, which is all that the program sees, and this library's own part of the object.
#[repr(C)]
pub(crate) struct Handle<P, T> {
    public: P,
    own: T,
}

impl<P, T> Handle<P, T> {
    pub(crate) fn hand_out(public: P, own: T) -> *mut P {
        Box::into_raw(Box::new(Handle { public, own })).cast()
    }

    /// # Safety
    /// `object` is from [`Self::hand_out`] of the same type, and not given up.
    pub(crate) unsafe fn of<'a>(object: *mut P) -> &'a T {
        // SAFETY: the caller says that the object is one of these, and lives.
        unsafe { &(*object.cast::<Self>()).own }
    }

    /// Ends the object, if `end` can; returns its error number otherwise.
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

/// A value that belongs to the thread whose turn it is.
#[derive(Default)]
pub(super) struct Turn<T> {
    what: UnsafeCell<T>,
    taken: AtomicBool,
}

impl<T> Turn<T> {
    pub(super) fn take(&self) {
        // Acquire, with the Release in `give`: sees the writes of the previous holder.
        while self.taken.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    pub(super) fn give(&self) {
        self.taken.store(false, Ordering::Release);
    }

    /// # Safety
    /// It is the caller's turn (or the program promised to use one thread), and it has no other reference to this.
    #[expect(clippy::mut_from_ref, reason = "the caller's turn makes it exclusive, as a lock's guard would")]
    pub(super) unsafe fn get(&self) -> &mut T {
        // SAFETY: the caller says that nobody else uses it.
        unsafe { &mut *self.what.get() }
    }
}
