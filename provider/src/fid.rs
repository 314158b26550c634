// SPDX-License-Identifier: MIT OR Apache-2.0
//! How C holds an object: a [`Handle`], which begins with libfabric's fid of the object's class and has a reference to
//! the object behind it. Objects refer to those that they use, so an object is in use while others refer to it, and
//! closing it is refused (`FI_EBUSY`).
//!
//! Called by the file of each object. Grade: hot ([`object`]), else setup. Threads: any. Tests: `tests/`.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::entry::{Result, done};
use crate::sys;

/// A kind of object that C can hold.
pub(crate) trait Class: Send + Sync + 'static {
    /// libfabric's structure of its fid, which begins with a `struct fid`.
    type Fid;

    /// `FI_CLASS_*`.
    const NUMBER: u32;

    /// Ends what refers to the object only because it is open. Called before it is closed.
    fn leave(self: &Arc<Self>) {}
}

/// An object that C holds.
#[repr(C)]
struct Handle<T: Class> {
    fid: T::Fid,
    object: Arc<T>,
}

/// Returns the `struct fid` of an object.
pub(crate) fn head<T: Class>(context: *mut c_void, operations: &'static sys::fi_ops) -> sys::fid {
    sys::fid { fclass: T::NUMBER as usize, context, ops: std::ptr::from_ref(operations).cast_mut() }
}

/// Pointer to a table of functions, as a fid has it. Nobody writes to it.
pub(crate) const fn pointer<T>(table: &'static T) -> *mut T {
    std::ptr::from_ref(table).cast_mut()
}

/// Gives C an object: stores the pointer to its fid, which begins with `head`.
///
/// # Safety
/// F2: `place` is null or has room for a pointer. `fid` begins with what [`head`] has returned for `T`.
pub(crate) unsafe fn give<T: Class>(fid: T::Fid, object: Arc<T>, place: *mut *mut T::Fid) -> Result<()> {
    if place.is_null() {
        return Err(sys::FI_EINVAL);
    }
    let handle = Box::into_raw(Box::new(Handle { fid, object }));
    // SAFETY: F2; the fid is at the start of the handle.
    unsafe { place.write(handle.cast()) };
    Ok(())
}

/// Returns the object of a fid.
///
/// # Safety
/// F1: [`give`] made it for a `T`, and it has not been closed.
#[inline(always)]
pub(crate) unsafe fn object<'call, T: Class>(fid: *mut impl Sized) -> &'call Arc<T> {
    // SAFETY: F1: the fid is at the start of a live handle.
    unsafe { &(*fid.cast::<Handle<T>>()).object }
}

/// Returns the object of a fid if it is a `T`.
///
/// # Safety
/// F1: a fid of this provider that has not been closed, or null.
pub(crate) unsafe fn object_if<'call, T: Class>(fid: *mut sys::fid) -> Option<&'call Arc<T>> {
    // SAFETY: F1: every fid begins with its class.
    let class = unsafe { fid.as_ref() }?.fclass;
    // SAFETY: F1, and only objects of `T` have this class.
    (class == T::NUMBER as usize).then(|| unsafe { object(fid) })
}

/// `fi_close` of an object.
///
/// # Safety
/// F1, and nobody uses the fid meanwhile or later.
pub(crate) unsafe extern "C" fn close<T: Class>(fid: *mut sys::fid) -> c_int {
    done("fi_close", || {
        // SAFETY: F1.
        let object = unsafe { object::<T>(fid) };
        object.leave();
        if Arc::strong_count(object) > 1 {
            return Err(sys::FI_EBUSY);
        }
        // SAFETY: `give` made the handle by `Box::into_raw`, and the program does not use it any more (F1).
        drop(unsafe { Box::from_raw(fid.cast::<Handle<T>>()) });
        Ok(())
    })
}

/// The functions of objects that can only be closed.
pub(crate) const fn only_closed<T: Class>() -> sys::fi_ops {
    crate::entry::table!(fi_ops { close: close::<T>; absent: bind, control, ops_open, tostr, ops_set })
}
