// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_comp_channel`: completion channels. The descriptor is a real one: programs poll it and make it non-blocking.
//! Grade: setup. Threads: any.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::engine::Channel;
use crate::sys::{ibv_comp_channel, ibv_context};
use crate::verbs::context::SoftContext;
use crate::verbs::error::{number, pointer};

/// A completion channel as programs hold it.
#[repr(C)]
pub(crate) struct SoftChannel {
    public: UnsafeCell<ibv_comp_channel>,
    engine: Channel,
}

impl SoftChannel {
    /// The channel behind a program's pointer.
    ///
    /// # Safety
    /// `channel` is from [`ibv_create_comp_channel`] and not destroyed.
    pub(crate) unsafe fn of<'a>(channel: *mut ibv_comp_channel) -> &'a SoftChannel {
        // SAFETY: every ibv_comp_channel this library gives out is the first field of a SoftChannel; what the program
        // may write is in an UnsafeCell.
        unsafe { &*channel.cast::<SoftChannel>() }
    }

    /// The engine's object.
    pub(crate) fn engine(&self) -> &Channel {
        &self.engine
    }

    /// A completion queue begins (+1) or ends (-1) to use it. The program reads the count at most for curiosity.
    pub(crate) fn count_user(&self, change: c_int) {
        // SAFETY: an aligned field of this object, which lives; this library accesses it here alone.
        unsafe { AtomicI32::from_ptr(&raw mut (*self.public.get()).refcnt) }.fetch_add(change, Ordering::Relaxed);
    }
}

/// `ibv_create_comp_channel(3)`.
///
/// # Safety
/// `context` is open.
pub(crate) unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    // SAFETY: the caller says that `context` is open.
    let engine = unsafe { SoftContext::of(context) }.hca().create_channel();
    pointer(engine.map(|engine| {
        let public = UnsafeCell::new(ibv_comp_channel { context, fd: engine.fd(), refcnt: 0 });
        Box::into_raw(Box::new(SoftChannel { public, engine })).cast()
    }))
}

/// `ibv_destroy_comp_channel(3)`: EBUSY while a completion queue uses it.
///
/// # Safety
/// `channel` is not destroyed, and given up if this succeeds.
pub(crate) unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: the caller says that `channel` is not destroyed.
    let result = unsafe { SoftChannel::of(channel) }.engine.destroy();
    if result.is_ok() {
        // SAFETY: made by Box in `ibv_create_comp_channel`; the caller gives it up.
        drop(unsafe { Box::from_raw(channel.cast::<SoftChannel>()) });
    }
    number(result)
}
