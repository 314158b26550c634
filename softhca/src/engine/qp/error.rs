// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue pairs enter the error state because of what happened elsewhere: at the wire, to a completion queue, or because
//! their program has read an event.
//!
//! Called by: `service::deferred`, `adapter::async_event`, scripted faults. Grade: pending. Thread rule: any thread
//! that holds no shared lock.

use crate::engine::{
    codes::qp_state::RESET,
    fabric::Fabric,
    qp::{shared::place, table},
    send::completion,
};

/// Enters the error state and flushes both queues. No lock is held.
pub(crate) fn flush_sends(fabric: &Fabric, index: u32) {
    let qp = place(fabric, index);
    let _held = qp.sq.lock.lock(fabric);
    if qp.qpn.get() != 0 && qp.state.get() != RESET {
        completion::fail(fabric, qp);
    }
}

/// The owner of the queue pair of this number has read an event about it: what was withheld is flushed.
pub(crate) fn event_was_read(fabric: &Fabric, number: u32) {
    let qp = place(fabric, number);
    if qp.qpn.get() == number && qp.withheld.swap(0) != 0 {
        flush_sends(fabric, qp.index());
    }
}

/// Stops all queue pairs that complete to this queue.
pub(crate) fn fail_all_with(fabric: &Fabric, cq: u64) {
    for qp in table::all(fabric).filter(|qp| qp.send_cq.get() == cq || qp.recv_cq.get() == cq) {
        flush_sends(fabric, qp.index());
    }
}
