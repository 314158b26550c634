// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handles of verbs objects (R4): made of what a verb gave, destroyed once, and keeping alive what the object was made
//! from.
//!
//! Held by every object of this module that owns one. Setup grade, but for [`Handle::raw`]: hot. Any thread. Tests: device
//! tests in `hw-tests`.

use super::{errno, sys};
use std::ptr::NonNull;
use std::{fmt, io};

/// A structure of libibverbs that a verb makes, and another destroys.
pub(super) trait Object {
    /// # Safety
    /// R4: made by a verb, not destroyed yet, and nothing made from it is left.
    unsafe fn destroy(raw: *mut Self) -> i32;
}

macro_rules! objects {
    ($($object:ident: $destroy:ident;)*) => { $(
        impl Object for sys::$object {
            unsafe fn destroy(raw: *mut Self) -> i32 {
                // SAFETY: R4, as the caller says.
                unsafe { sys::$destroy(raw) }
            }
        }
    )* };
}

objects! {
    ibv_context: ibv_close_device;
    ibv_pd: ibv_dealloc_pd;
    ibv_mr: ibv_dereg_mr;
    ibv_cq: ibv_destroy_cq;
    ibv_srq: ibv_destroy_srq;
    ibv_qp: ibv_destroy_qp;
    ibv_ah: ibv_destroy_ah;
}

/// The owner of an object, and of `K`, what the object was made from.
pub(super) struct Handle<T: Object, K = ()> {
    raw: NonNull<T>,
    _keep: K,
}

// SAFETY: R4, libibverbs objects may be used and destroyed by any thread.
unsafe impl<T: Object, K: Send> Send for Handle<T, K> {}
// SAFETY: `&Handle` only gives out the pointer.
unsafe impl<T: Object, K: Sync> Sync for Handle<T, K> {}

impl<T: Object, K> Handle<T, K> {
    /// Takes what a verb has answered.
    ///
    /// # Errors
    /// The errno, where that is null.
    ///
    /// # Safety
    /// R4: null, or just made, from what `keep` keeps alive.
    pub(super) unsafe fn new(raw: *mut T, keep: K) -> io::Result<Self> {
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { raw, _keep: keep })
    }

    #[inline(always)]
    pub(super) fn raw(&self) -> *mut T {
        self.raw.as_ptr()
    }
}

impl<T: Object> Handle<T> {
    /// Destroys the object, and says whether that worked.
    ///
    /// # Errors
    /// The errno of the verb; the object is then lost to the process until it ends.
    pub(super) fn destroy(self) -> io::Result<()> {
        let handle = std::mem::ManuallyDrop::new(self);
        // SAFETY: R4: destroyed once, here; the `ManuallyDrop` keeps `drop` from doing so again.
        errno(unsafe { T::destroy(handle.raw()) })
    }
}

impl<T: Object, K> Drop for Handle<T, K> {
    fn drop(&mut self) {
        // SAFETY: R4: destroyed once, before `_keep`; what was made from it holds an `Arc` to it, so none is left.
        unsafe { T::destroy(self.raw()) };
    }
}

impl<T: Object, K> fmt::Debug for Handle<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.raw).finish()
    }
}
