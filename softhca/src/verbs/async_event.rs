// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_get_async_event(3)` and its acknowledgement: events about queues, queue pairs, ports and the adapter.
//! Grade: setup; a program's event thread sleeps here. Threads: any.

use std::ffi::{c_int, c_void};

use super::context::SoftContext;
use super::cq::object::SoftCq;
use super::error::minus_one;
use super::qp::object::SoftQp;
use super::qp::srq::SoftSrq;
use super::registry;
use crate::engine::codes::event;
use crate::engine::{AsyncEvent, ObjectRef, Result};
use crate::sys::{ibv_async_event, ibv_context};

/// `ibv_get_async_event(3)`: waits for an event unless the descriptor is non-blocking; -1 with `errno` otherwise.
///
/// # Safety
/// `context` is open; `out` is writable.
pub(crate) unsafe extern "C" fn ibv_get_async_event(context: *mut ibv_context, out: *mut ibv_async_event) -> c_int {
    // SAFETY: the caller says that `context` is open.
    let hca = unsafe { SoftContext::of(context) }.hca();
    let found: Result<ibv_async_event> = (|| {
        loop {
            if let Some(event) = translate(hca.read_async_event()?) {
                return Ok(event);
            }
        }
    })();
    // SAFETY: writable by the caller's word.
    minus_one(found.map(|event| unsafe { out.write(event) }))
}

/// The event as programs get it; `None` if the object it is about is gone.
fn translate(found: AsyncEvent) -> Option<ibv_async_event> {
    let mut event = ibv_async_event { event_type: found.kind as _, ..ibv_async_event::default() };
    match found.object {
        ObjectRef::Cq(number) | ObjectRef::Qp(number) | ObjectRef::Srq(number) => {
            event.element.cq = registry::deliver::<c_void>(number)?.cast();
        }
        ObjectRef::Port(port) => event.element.port_num = c_int::from(port),
        ObjectRef::Device => {}
    }
    Some(event)
}

/// `ibv_ack_async_event`.
///
/// # Safety
/// `found` is from [`ibv_get_async_event`] and not acknowledged before.
pub(crate) unsafe extern "C" fn ibv_ack_async_event(found: *mut ibv_async_event) {
    // SAFETY: the caller says that it is an event, and not acknowledged before.
    let found = unsafe { &*found };
    // SAFETY: the kind of an event tells which member of the union it has; an unacknowledged event keeps the object.
    let number = unsafe {
        match found.event_type {
            event::CQ_ERR => SoftCq::of(found.element.cq.cast()).number,
            event::SRQ_ERR | event::SRQ_LIMIT_REACHED => SoftSrq::of(found.element.srq).number,
            event::QP_FATAL
            | event::QP_REQ_ERR
            | event::QP_ACCESS_ERR
            | event::COMM_EST
            | event::SQ_DRAINED
            | event::QP_LAST_WQE_REACHED => SoftQp::of(found.element.qp.cast()).number,
            _ => return,
        }
    };
    registry::acknowledge(number, 1);
}
