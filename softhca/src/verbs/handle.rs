// SPDX-License-Identifier: MIT OR Apache-2.0
//! An object as programs hold it: C's structure, which their pointer is to, and behind it what is this library's own.
//!
//! Called by: every object of verbs. Grade: `of` is hot (an addition). Threads: any. A program gives pointers that this
//! library gave out for an object of that kind, and gives one up by the verb that ends the object: each caller says so.
//! No inline function of verbs.h writes into C's structures. This library writes, once a program knows the object, a
//! queue pair's `state`, a queue's `cqe` and a channel's `refcnt`, atomically, since several threads may call the verb;
//! the `status` and `wr_id` of an extended queue, as the holder of its cursor; a window's key, as who binds it, and a
//! region, as who registers it anew, which man pages leave to one thread. References are to what is behind only.

use std::ffi::c_int;

use super::error::number;
use crate::engine::Result;

/// C's structure `P`, which is all that the program sees, and what this library keeps of the object.
#[repr(C)]
pub(crate) struct Handle<P, T> {
    public: P,
    own: T,
}

impl<P, T> Handle<P, T> {
    /// An object for the program.
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
