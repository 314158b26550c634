// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handles of verbs objects (R4). Used by every type of this folder that owns a verbs object. Grade: setup, except
//! [`Handle::raw`]: hot. Threads: any. Tests: the device tests in `hw-tests`.

use super::{errno, sys};
use std::ptr::NonNull;
use std::{fmt, io};

/// A structure of libibverbs that one verb makes and another destroys.
pub(super) trait Object {
    /// Destroys the object. Returns 0 or an errno.
    ///
    /// # Safety
    /// R4: a verb made the object, it is not destroyed yet, and no object made from it is left.
    unsafe fn destroy(raw: *mut Self) -> i32;
}

macro_rules! objects {
    ($($object:ident: $destroy:ident;)*) => { $(
        impl Object for sys::$object {
            unsafe fn destroy(raw: *mut Self) -> i32 {
                // SAFETY: R4: the object is live and unused, as `Object::destroy` requires.
                unsafe { sys::$destroy(raw) }
            }
        }
    )* };
}

objects! {
    ibv_context: ibv_close_device;
    ibv_pd: ibv_dealloc_pd;
    ibv_mr: ibv_dereg_mr;
    ibv_comp_channel: ibv_destroy_comp_channel;
    ibv_cq: ibv_destroy_cq;
    ibv_srq: ibv_destroy_srq;
    ibv_qp: ibv_destroy_qp;
    ibv_ah: ibv_destroy_ah;
}

/// Owner of an object. `K` keeps alive the objects from which it was made.
pub(super) struct Handle<T: Object, K = ()> {
    raw: NonNull<T>,
    _keep: K,
}

// SAFETY: R4: any thread may use and destroy an object of libibverbs.
unsafe impl<T: Object, K: Send> Send for Handle<T, K> {}
// SAFETY: R4: `&Handle` only gives out the pointer, and any thread may use the object.
unsafe impl<T: Object, K: Sync> Sync for Handle<T, K> {}

impl<T: Object, K> Handle<T, K> {
    /// Takes the result of a verb that makes an object. Fails with the verb's errno if `raw` is null.
    ///
    /// # Safety
    /// R4: `raw` is null, or an object that a verb has just made from objects that `keep` keeps alive.
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
    /// Destroys the object. If the verb fails, the object stays until the process ends.
    pub(super) fn destroy(self) -> io::Result<()> {
        let handle = std::mem::ManuallyDrop::new(self);
        // SAFETY: R4: `ManuallyDrop` prevents a second destruction; this is the whole handle, so no users are left.
        errno(unsafe { T::destroy(handle.raw()) })
    }
}

impl<T: Object, K> Drop for Handle<T, K> {
    fn drop(&mut self) {
        // SAFETY: R4: `drop` runs once, before `_keep` is dropped; objects made from this one hold it, so none is left.
        unsafe { T::destroy(self.raw()) };
    }
}

impl<T: Object, K> fmt::Debug for Handle<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.raw).finish()
    }
}
