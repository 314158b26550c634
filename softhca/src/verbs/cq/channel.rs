// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_comp_channel`: completion channels. The descriptor is a real one: programs poll it and make it non-blocking.
//! Grade: setup. Threads: any.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::engine::Channel;
use crate::sys::{ibv_comp_channel, ibv_context};
use crate::verbs::context::SoftContext;
use crate::verbs::error::pointer;
use crate::verbs::handle::Handle;

/// A completion channel as programs hold it.
pub(crate) type SoftChannel = Handle<ibv_comp_channel, Channel>;

/// A completion queue begins (+1) or ends (-1) to use `channel`. The program reads the count at most for curiosity.
///
/// # Safety
/// `channel` is not destroyed.
pub(super) unsafe fn count_user(channel: *mut ibv_comp_channel, change: c_int) {
    // SAFETY: an aligned field of the channel, which lives; this library accesses it here alone.
    unsafe { AtomicI32::from_ptr(&raw mut (*channel).refcnt) }.fetch_add(change, Ordering::Relaxed);
}

/// `ibv_create_comp_channel(3)`.
///
/// # Safety
/// `context` is open.
pub(crate) unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    // SAFETY: the caller says that `context` is open.
    let engine = unsafe { SoftContext::of(context) }.hca().create_channel();
    pointer(engine.map(|engine| {
        let public = ibv_comp_channel { context, fd: engine.fd(), refcnt: 0 };
        SoftChannel::hand_out(public, engine)
    }))
}

/// `ibv_destroy_comp_channel(3)`: EBUSY while a completion queue uses it.
///
/// # Safety
/// `channel` is not destroyed, and given up if this succeeds.
pub(crate) unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: the caller says that `channel` is not destroyed, and given up if this succeeds.
    unsafe { SoftChannel::end(channel, Channel::destroy) }
}
