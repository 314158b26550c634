// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completion events: `ibv_get_cq_event(3)` and their acknowledgement.
//! Grade: pending: a program comes here when it sleeps between messages. Threads: any.

use std::ffi::{c_int, c_uint, c_void};

use super::channel::SoftChannel;
use super::object::SoftCq;
use crate::engine::Result;
use crate::sys::{ibv_comp_channel, ibv_cq};
use crate::verbs::error::minus_one;
use crate::verbs::registry;

/// `ibv_get_cq_event(3)`: waits for an event unless the descriptor is non-blocking; -1 with `errno` otherwise.
///
/// # Safety
/// `channel` is not destroyed; `cq` and `cq_context` are writable.
pub(crate) unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller says that `channel` is not destroyed.
    let channel = unsafe { SoftChannel::of(channel) };
    // An event of a queue that is gone is skipped: the kernel's would have been discarded with the queue.
    let next: Result<*mut ibv_cq> = (|| {
        loop {
            if let Some(queue) = registry::deliver(channel.read_event()?) {
                return Ok(queue);
            }
        }
    })();
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
        // SAFETY: the caller says that `cq` is a completion queue; an unacknowledged event keeps it.
        registry::acknowledge(unsafe { SoftCq::of(cq.cast()) }.number, u64::from(count));
    }
}
