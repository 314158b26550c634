// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events as programs get them: completion channels, `ibv_get_cq_event(3)`, `ibv_get_async_event(3)`, and the objects
//! that events may be about. The engine names an object in an event by the number given when it was made; by the time a
//! program reads the event, the object may be gone. This module looks numbers up, and counts events until they are
//! acknowledged, since destroying an object waits for that. A channel's descriptor is a real one: programs poll it and
//! make it non-blocking. Grade: pending: programs sleep here. Threads: any; one lock.

use std::collections::HashMap;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

use crate::engine::codes::event;
use crate::engine::{AsyncEvent, Channel, Result};
use crate::sys::{ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq};
use crate::verbs::{Handle, SoftCq, SoftQp, SoftSrq, adapter, minus_one, pointer};

struct Entry {
    object: usize,
    unacknowledged: u64,
}

#[derive(Default)]
struct Table {
    last: u64,
    entries: HashMap<u64, Entry>,
}

static TABLE: LazyLock<Mutex<Table>> = LazyLock::new(Mutex::default);
static ACKNOWLEDGED: Condvar = Condvar::new();

fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a number for an object that is about to be made; no object ever had it.
pub(crate) fn reserve() -> u64 {
    let mut table = table();
    table.last += 1;
    table.last
}

/// Lets events name `object` by `number`.
pub(crate) fn enter<T>(number: u64, object: *mut T) {
    table().entries.insert(number, Entry { object: object as usize, unacknowledged: 0 });
}

/// Returns the object of an event, which is not freed until the event is acknowledged; `None` if it is gone.
pub(crate) fn deliver<T>(number: u64) -> Option<*mut T> {
    let mut table = table();
    let entry = table.entries.get_mut(&number)?;
    entry.unacknowledged += 1;
    Some(entry.object as *mut T)
}

pub(crate) fn acknowledge(number: u64, count: u64) {
    if let Some(entry) = table().entries.get_mut(&number) {
        entry.unacknowledged = entry.unacknowledged.saturating_sub(count);
    }
    ACKNOWLEDGED.notify_all();
}

/// Waits until all events of this object are acknowledged; no further event will name it.
pub(crate) fn retire(number: u64) {
    let mut table = table();
    while table.entries.get(&number).is_some_and(|entry| entry.unacknowledged > 0) {
        table = ACKNOWLEDGED.wait(table).unwrap_or_else(PoisonError::into_inner);
    }
    table.entries.remove(&number);
}

pub(crate) type SoftChannel = Handle<ibv_comp_channel, Channel>;

/// Counts that a completion queue begins (+1) or ends (-1) to use `channel`; programs only look at the count.
/// # Safety
/// `channel` is not destroyed.
pub(super) unsafe fn count_user(channel: *mut ibv_comp_channel, change: c_int) {
    // SAFETY: an aligned field of the channel, which lives; this library accesses it here alone.
    unsafe { AtomicI32::from_ptr(&raw mut (*channel).refcnt) }.fetch_add(change, Ordering::Relaxed);
}

pub(crate) unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    // SAFETY: `context` is open (rule V).
    let engine = unsafe { adapter(context) }.create_channel();
    pointer(engine.map(|engine| {
        let public = ibv_comp_channel { context, fd: engine.fd(), refcnt: 0 };
        SoftChannel::hand_out(public, engine)
    }))
}

/// `ibv_destroy_comp_channel(3)`: EBUSY while a completion queue uses it.
pub(crate) unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: `channel` is not destroyed, and given up if this succeeds (rule V).
    unsafe { SoftChannel::end(channel, Channel::destroy) }
}

/// Returns the first event whose object still exists: the kernel would have discarded the others with their objects.
fn first<T>(mut read: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    loop {
        if let Some(event) = read()? {
            return Ok(event);
        }
    }
}

/// `ibv_get_cq_event(3)`: waits for an event unless the descriptor is non-blocking; -1 with `errno` otherwise.
pub(crate) unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: `channel` is not destroyed (rule V).
    let channel = unsafe { SoftChannel::of(channel) };
    let next: Result<*mut ibv_cq> = first(|| Ok(deliver(channel.read_event()?)));
    minus_one(next.map(|queue| {
        // SAFETY: writable (rule V); the queue is not freed before this event is acknowledged.
        unsafe {
            cq.write(queue);
            cq_context.write((*queue).cq_context);
        }
    }))
}

pub(crate) unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, count: c_uint) {
    if count > 0 {
        // SAFETY: `cq` is a completion queue; an unacknowledged event keeps it (rule V).
        acknowledge(unsafe { SoftCq::of(cq.cast()) }.number, u64::from(count));
    }
}

pub(crate) unsafe extern "C" fn ibv_get_async_event(context: *mut ibv_context, out: *mut ibv_async_event) -> c_int {
    // SAFETY: `context` is open (rule V).
    let hca = unsafe { adapter(context) };
    let found = first(|| Ok(translate(hca.read_async_event()?)));
    // SAFETY: writable (rule V).
    minus_one(found.map(|event| unsafe { out.write(event) }))
}

/// Converts the event to that of programs; `None` if its object is gone.
fn translate(found: AsyncEvent) -> Option<ibv_async_event> {
    let mut event = ibv_async_event { event_type: found.kind as _, ..ibv_async_event::default() };
    if found.cookie == 0 {
        event.element.port_num = c_int::from(found.port);
    } else {
        event.element.cq = deliver::<c_void>(found.cookie)?.cast();
    }
    Some(event)
}

pub(crate) unsafe extern "C" fn ibv_ack_async_event(found: *mut ibv_async_event) {
    // SAFETY: it is an event, and not acknowledged before (rule V).
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
    acknowledge(number, 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retire_waits_until_the_last_event_is_acknowledged() {
        let mut object = 7_u32;
        let number = reserve();
        assert!(deliver::<u32>(number).is_none());
        enter(number, &raw mut object);
        assert_eq!(deliver::<u32>(number), Some(&raw mut object));
        deliver::<u32>(number);
        let waiter = std::thread::spawn(move || retire(number));
        acknowledge(number, 1);
        acknowledge(number, 1);
        waiter.join().unwrap();
        assert!(deliver::<u32>(number).is_none());
    }
}
