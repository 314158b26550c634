// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of queue pairs: takes places, gives them back, and looks through them; and stops queue pairs after an
//! error at the wire or of a completion queue, or because their program has read an event. A place only ever holds
//! queue pairs, so a stale number finds a queue pair with another number. A number is the place's index (16 bits) and
//! its generation (8 bits). A place has an owner from when it is taken until it is given back; the number of places and
//! the list of free ones follow from that. Called by: lifetime, service (a dead process' queue pairs, deferred work),
//! adapter, timeline. Grade: setup. Thread rule: the region's lock of the tables, taken by `lock`; stop a queue pair
//! without a shared lock.

use crate::engine::codes::qp_state::RESET;
use crate::engine::codes::qp_type::XRC_RECV;
use crate::engine::memory::heap::audit_places;
use crate::engine::memory::layout::MAX_QPS;
use crate::engine::qp::object;
use crate::engine::send::execution;
use crate::engine::{Errno, Fabric, Held, QpShared, Result, W32, place};

/// Lower indices are those of the special queue pairs.
const FIRST_INDEX: u32 = 64;
/// Number of places that are used before any is used again.
const FRESH: u32 = 1024;

/// All places that were ever used, each with its index.
fn places(fabric: &Fabric) -> impl Iterator<Item = (u32, &'static QpShared)> {
    (FIRST_INDEX..FIRST_INDEX + fabric.header().qps_used.seen()).map(|index| (index, place(fabric, index)))
}

pub(crate) fn all(fabric: &Fabric) -> impl Iterator<Item = &'static QpShared> {
    places(fabric).map(|(_, qp)| qp).filter(|qp| qp.qpn.get() != 0)
}

/// Takes the lock of the tables. If its last holder died with it, makes numbers and list of the free places anew.
pub(crate) fn lock(fabric: &Fabric) -> Held<'static> {
    let header = fabric.header();
    let held = header.tables.lock(fabric);
    if held.is_inherited {
        [&header.qps_free, &header.qps_free_last].into_iter().chain(&header.qps_of).for_each(|word| word.set(0));
        for (index, qp) in places(fabric) {
            if qp.owner.get() == 0 {
                list(fabric, index);
            } else {
                header.qps_of[qp.device.get() as usize].add(1);
            }
        }
    }
    held
}

fn list(fabric: &Fabric, index: u32) {
    let header = fabric.header();
    place(fabric, index).next_free.set(0);
    match header.qps_free_last.get() {
        0 => header.qps_free.set(index + 1),
        last => place(fabric, last - 1).next_free.set(index + 1),
    }
    header.qps_free_last.set(index + 1);
}

/// Finishes changes that process `token`, which is dead, has begun at queue pairs of other processes: afterwards none
/// of their locks names it.
pub(crate) fn inherit_from(fabric: &Fabric, token: u32) {
    for qp in all(fabric).filter(|qp| qp.owner.get() != token) {
        if qp.sq.lock.is_of(token) {
            drop(qp.lock_sends(fabric));
        }
        if qp.resp.lock.is_of(token) {
            drop(qp.lock_answers(fabric));
        }
    }
}

/// Frees the queue pairs of a dead process, and places that it had taken for one.
pub(crate) fn release_all_of(fabric: &Fabric, token: u32) {
    for (index, _) in places(fabric).filter(|(_, qp)| qp.owner.get() == token) {
        release(fabric, index);
    }
}

/// Removes the queue pair, or one that is half made: when this returns, no thread can find it or still works on it.
pub(super) fn release(fabric: &Fabric, index: u32) {
    let qp = place(fabric, index);
    object::leave(fabric, index, None);
    qp.state.publish(RESET);
    {
        let _sends = qp.lock_sends(fabric);
        let _answers = qp.lock_answers(fabric);
        qp.qpn.publish(0);
        qp.sq.end(fabric);
        qp.rq.end(fabric);
        qp.inbox.end(fabric);
    }
    let _tables = lock(fabric);
    qp.owner.set(0);
    let count = &fabric.header().qps_of[qp.device.get() as usize];
    count.set(count.get() - 1);
    list(fabric, index);
}

/// Panics unless each place belongs to one of these processes, or is listed once as free.
pub(crate) fn audit(fabric: &Fabric, alive: &[u32]) {
    let _tables = lock(fabric);
    let header = fabric.header();
    let next = |index: &u64| place(fabric, *index as u32).next_free.get().checked_sub(1).map(u64::from);
    let free: Vec<u64> = std::iter::successors(header.qps_free.get().checked_sub(1).map(u64::from), next).collect();
    let last = free.last().map(|index| *index as u32);
    assert_eq!(last, header.qps_free_last.get().checked_sub(1), "the last free place");
    audit_places(places(fabric).map(|(index, qp)| (u64::from(index), qp.owner.get())), &free, alive);
    let (counted, used) = (header.qps_of.iter().map(W32::get).sum::<u32>() as usize, places(fabric).count());
    assert_eq!(counted + free.len(), used, "places in use, and free ones");
}

/// Takes a free place, if possible one that has been free for long, and its new number; ENOMEM if there is none.
pub(super) fn take(fabric: &Fabric, device: usize) -> Result<(&'static QpShared, u32)> {
    let header = fabric.header();
    let _tables = lock(fabric);
    let count = &header.qps_of[device];
    if count.get() >= fabric.devices()[device].limits.max_qp as u32 {
        return Err(Errno(libc::ENOMEM));
    }
    let used = header.qps_used.get();
    let first = header.qps_free.get();
    // At first takes new places, so that a number is not soon given again; later old ones, so that memory stays small.
    let index = if used < FRESH || (first == 0 && used < MAX_QPS - FIRST_INDEX) {
        header.qps_used.publish(used + 1);
        FIRST_INDEX + used
    } else {
        if first == 0 {
            return Err(Errno(libc::ENOMEM));
        }
        let next = place(fabric, first - 1).next_free.get();
        header.qps_free.set(next);
        if next == 0 {
            header.qps_free_last.set(0);
        }
        first - 1
    };
    count.set(count.get() + 1);
    let qp = place(fabric, index);
    qp.device.set(device as u32);
    qp.owner.publish(fabric.token());
    let generation = (qp.generation.get() + 1) & 0xff;
    qp.generation.set(generation);
    Ok((qp, index | (generation << 16)))
}

/// Returns the queue pairs whose sends wait for a request in this shared receive queue.
pub(crate) fn waiting_for(fabric: &Fabric, srq: u64) -> Vec<u32> {
    // Only the peer's request names the queue for which an XRC connection waits, so all XRC connections look.
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
    let _held = qp.lock_sends(fabric);
    if qp.qpn.get() != 0 && qp.state.get() != RESET {
        execution::fail(fabric, qp);
    }
}

/// Flushes withheld requests, because the owner of this queue pair has read an event about it.
pub(crate) fn event_was_read(fabric: &Fabric, number: u32) {
    let qp = place(fabric, number);
    if qp.qpn.get() == number && qp.withheld.swap(0) != 0 {
        flush_sends(fabric, qp.index());
    }
}

pub(crate) fn fail_all_with(fabric: &Fabric, cq: u64) {
    for qp in all(fabric).filter(|qp| qp.send_cq.get() == cq || qp.recv_cq.get() == cq) {
        flush_sends(fabric, qp.index());
    }
}
