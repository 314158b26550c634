// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of queue pairs: takes places, gives them back, and looks through them; and stops queue pairs because of
//! what happened at the wire or to a completion queue, or because their program has read an event. Places never become
//! anything else, so a stale number finds a queue pair that says it is another. A number is the place's index (16 bits)
//! and its generation (8 bits). Called by: lifetime, service (a dead process' queue pairs, deferred work), adapter,
//! timeline. Grade: setup. Thread rule: the region's lock of the tables; stop a queue pair without a shared lock.

use crate::engine::codes::qp_state::RESET;
use crate::engine::codes::qp_type::XRC_RECV;
use crate::engine::memory::layout::{MAX_QPS, qp_at};
use crate::engine::qp::{QpShared, object, place, table};
use crate::engine::send::execution;
use crate::engine::{Errno, Fabric, Result};

/// Lower indices are those of the special queue pairs.
const FIRST_INDEX: u32 = 64;
/// Number of places that are used before any is used again.
const FRESH: u32 = 1024;

pub(crate) fn all(fabric: &Fabric) -> impl Iterator<Item = &'static QpShared> {
    let region = fabric.region();
    let used = fabric.header().qps_used.seen();
    (0..used).map(|index| region.at::<QpShared>(qp_at(FIRST_INDEX + index))).filter(|qp| qp.qpn.get() != 0)
}

pub(crate) fn release_all_of(fabric: &Fabric, token: u32) {
    for qp in all(fabric).filter(|qp| qp.owner.get() == token) {
        release(fabric, qp);
    }
}

/// Removes the queue pair: when this returns, no thread can find it or is still working on it.
pub(super) fn release(fabric: &Fabric, qp: &QpShared) {
    object::leave(fabric, qp.index(), None);
    let (index, device) = (qp.index(), qp.device.get() as usize);
    {
        let _sends = qp.sq.lock.lock(fabric);
        let _answers = qp.resp.lock.lock(fabric);
        qp.state.publish(RESET);
        qp.qpn.publish(0);
        qp.sq.end(fabric);
        qp.rq.end(fabric);
        qp.inbox.end(fabric);
    }
    give_back(fabric, index, device);
}

/// Frees the place of this index (or number), which counts for `device` and no thread knows.
pub(super) fn give_back(fabric: &Fabric, number: u32, device: usize) {
    let index = number & 0xffff;
    let region = fabric.region();
    let header = fabric.header();
    let _tables = header.tables.lock(fabric);
    let count = &header.qps_of[device];
    count.set(count.get() - 1);
    region.at::<QpShared>(qp_at(index)).next_free.set(0);
    match header.qps_free_last.get() {
        0 => header.qps_free.set(index + 1),
        last => region.at::<QpShared>(qp_at(last - 1)).next_free.set(index + 1),
    }
    header.qps_free_last.set(index + 1);
}

/// Takes a free place, if possible one that has been free for long, and its new number; ENOMEM if there is none.
pub(super) fn take(fabric: &Fabric, device: usize) -> Result<(&'static QpShared, u32)> {
    let region = fabric.region();
    let header = fabric.header();
    let _tables = header.tables.lock(fabric);
    let count = &header.qps_of[device];
    if count.get() >= fabric.devices()[device].limits.max_qp as u32 {
        return Err(Errno(libc::ENOMEM));
    }
    let used = header.qps_used.get();
    let first = header.qps_free.get();
    // At first new places, so that a number is not soon given again; later, old ones, so that memory stays small.
    let index = if used < FRESH || (first == 0 && used < MAX_QPS - FIRST_INDEX) {
        header.qps_used.publish(used + 1);
        FIRST_INDEX + used
    } else {
        if first == 0 {
            return Err(Errno(libc::ENOMEM));
        }
        let next = region.at::<QpShared>(qp_at(first - 1)).next_free.get();
        header.qps_free.set(next);
        if next == 0 {
            header.qps_free_last.set(0);
        }
        first - 1
    };
    count.set(count.get() + 1);
    let qp: &QpShared = region.at(qp_at(index));
    let generation = (qp.generation.get() + 1) & 0xff;
    qp.generation.set(generation);
    Ok((qp, index | (generation << 16)))
}

/// Returns the queue pairs whose sends wait for a request in this shared receive queue.
pub(crate) fn waiting_for(fabric: &Fabric, srq: u64) -> Vec<u32> {
    // The request of the peer says which queue an XRC connection waits for: all of them look.
    let may_use = |qp: &QpShared| qp.srq.get() == srq || qp.kind.get() == XRC_RECV;
    let waited = |qp: &&QpShared| qp.rq.wanted.get() != 0 && may_use(qp);
    all(fabric)
        .filter(waited)
        .map(|qp| {
            qp.rq.wanted.set(0);
            qp.dest_qpn.get() & 0xffff
        })
        .collect()
}

/// Enters the error state and flushes both queues. The caller holds no lock.
pub(crate) fn flush_sends(fabric: &Fabric, index: u32) {
    let qp = place(fabric, index);
    let _held = qp.sq.lock.lock(fabric);
    if qp.qpn.get() != 0 && qp.state.get() != RESET {
        execution::fail(fabric, qp);
    }
}

/// Flushes what was withheld, as the owner of this queue pair has read an event about it.
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
