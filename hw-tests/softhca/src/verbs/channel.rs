// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_comp_channel` and completion events. The descriptor is a real one: programs poll it and make it non-blocking.
//! Grade: pending: a program comes here when it sleeps between messages. Threads: any.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_uint, c_void};

use super::context::SoftContext;
use super::cq::SoftCq;
use super::error::{minus_one, number, pointer};
use super::registry;
use crate::engine::{Channel, Result};
use crate::sys::{ibv_comp_channel, ibv_context, ibv_cq};

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
        // SAFETY: the field is read and written here only, and completion queues of one channel are made and destroyed
        // by calls that the program does not race on one another (`ibv_destroy_comp_channel(3)`).
        unsafe { (*self.public.get()).refcnt += change };
    }
}

/// `ibv_create_comp_channel(3)`.
///
/// # Safety
/// `context` is open.
pub(crate) unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    // SAFETY: by the caller's word.
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
    // SAFETY: by the caller's word.
    let result = unsafe { SoftChannel::of(channel) }.engine.destroy();
    if result.is_ok() {
        // SAFETY: made by Box in `ibv_create_comp_channel`; the caller gives it up.
        drop(unsafe { Box::from_raw(channel.cast::<SoftChannel>()) });
    }
    number(result)
}

/// `ibv_get_cq_event(3)`: waits for an event unless the descriptor is non-blocking; -1 with `errno` otherwise.
///
/// # Safety
/// `channel` is not destroyed; `cq` and `cq_context` are writable.
pub(crate) unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: by the caller's word.
    let channel = unsafe { SoftChannel::of(channel) };
    let next: Result<*mut ibv_cq> = loop {
        match channel.engine.read_event() {
            // An event of a queue that is gone is skipped: the kernel's would have been discarded with the queue.
            Ok(number) => {
                if let Some(queue) = registry::deliver::<ibv_cq>(number) {
                    break Ok(queue);
                }
            }
            Err(errno) => break Err(errno),
        }
    };
    minus_one(next.map(|queue| {
        // SAFETY: writable by the caller's word; the queue is not freed before this event is acknowledged.
        unsafe {
            cq.write(queue);
            cq_context.write((*queue).cq_context);
        }
    }))
}

/// `ibv_ack_cq_events(3)`.
///
/// # Safety
/// `cq` is a completion queue with at least `count` events not yet acknowledged.
pub(crate) unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, count: c_uint) {
    if count > 0 {
        // SAFETY: by the caller's word; an unacknowledged event keeps the queue.
        registry::acknowledge(unsafe { SoftCq::of(cq) }.number(), u64::from(count));
    }
}
