// SPDX-License-Identifier: MIT OR Apache-2.0
//! A send request is over: it is counted and, if need be, completed; a failure stops the queue and flushes the rest.
//!
//! Called by: post, retry, and whoever stops a queue pair (`fail`). Grade: `complete` is hot. Thread rule: `sq.lock` of
//! the queue pair.

use crate::engine::{
    clock,
    codes::{
        event,
        qp_state::{RTS, SQE},
        qp_type::is_reliable,
        send_flags, wc_opcode, wc_status, wr_opcode,
    },
    cq::completion::Completion,
    fabric::{Fabric, counters::Count},
    qp::shared::QpShared,
    send::{execution::is_fetch, queue::NOTHING},
};

fn completion_opcode(opcode: u32) -> u32 {
    match opcode {
        wr_opcode::RDMA_WRITE | wr_opcode::RDMA_WRITE_WITH_IMM => wc_opcode::RDMA_WRITE,
        wr_opcode::RDMA_READ => wc_opcode::RDMA_READ,
        wr_opcode::ATOMIC_CMP_AND_SWP => wc_opcode::COMP_SWAP,
        wr_opcode::ATOMIC_FETCH_AND_ADD => wc_opcode::FETCH_ADD,
        wr_opcode::LOCAL_INV => wc_opcode::LOCAL_INV,
        wr_opcode::BIND_MW => wc_opcode::BIND_MW,
        _ => wc_opcode::SEND,
    }
}

/// The oldest request is over: counts it and, if it is asked for or has failed, says so. After a failure the queue
/// stops.
#[expect(clippy::too_many_arguments, reason = "the fields of a request, stored or not")]
#[inline]
pub(super) fn complete(
    fabric: &Fabric,
    qp: &QpShared,
    wr_id: u64,
    opcode: u32,
    flags: u32,
    len: u32,
    status: u32,
    ready_ns: u64,
) {
    let sq = &qp.sq;
    let done = sq.done.get().wrapping_add(1);
    sq.done.set(done);
    let said = flags & send_flags::SIGNALED != 0 || qp.signal_all.get() != 0 || status != wc_status::SUCCESS;
    if said && let Some(reserved) = qp.send_cq(fabric).reserve(fabric) {
        let completion = Completion {
            wr_id,
            status,
            opcode: completion_opcode(opcode),
            byte_len: if is_fetch(opcode) && opcode != wr_opcode::RDMA_READ { 8 } else { len },
            wqe: done,
            ready_ns,
            ..Completion::default()
        };
        reserved.commit(fabric, qp.name(), &completion);
    }
    if status != wc_status::SUCCESS && status != wc_status::WR_FLUSH_ERR {
        stop(fabric, qp, status);
    }
}

/// A send has failed: reliable queue pairs enter the error state, others only stop sending.
#[cold]
fn stop(fabric: &Fabric, qp: &QpShared, status: u32) {
    qp.count(fabric, Count::RequesterError);
    if status == wc_status::RETRY_EXC_ERR && qp.behaviour(fabric).qp_fatal_on_retry_exc {
        qp.raise(fabric, event::QP_FATAL);
    }
    if status == wc_status::REM_ACCESS_ERR {
        qp.count(fabric, Count::RequesterAccess);
    }
    if is_reliable(qp.kind.get()) {
        fail(fabric, qp);
    } else {
        let answers = qp.resp.lock.lock(fabric);
        if qp.state.get() == RTS {
            qp.state.publish(SQE);
        }
        drop(answers);
        flush(fabric, qp);
    }
}

/// Enters the error state; the caller holds `sq.lock`.
#[cold]
pub(crate) fn fail(fabric: &Fabric, qp: &QpShared) {
    let answers = qp.resp.lock.lock(fabric);
    qp.fail_receives(fabric);
    drop(answers);
    flush(fabric, qp);
}

/// Ends all stored requests as flushed.
#[cold]
pub(super) fn flush(fabric: &Fabric, qp: &QpShared) {
    let sq = &qp.sq;
    sq.wait.set(NOTHING);
    sq.deadline.set(clock::NEVER);
    if qp.withheld.get() != 0 {
        return;
    }
    while sq.done.get() != sq.posted.get() {
        // SAFETY: a request between `done` and `posted` was written, under the lock that the caller holds.
        let kept = unsafe { sq.request(fabric, sq.done.get()).read() };
        complete(fabric, qp, kept.wr_id, kept.opcode, kept.flags, kept.len, wc_status::WR_FLUSH_ERR, 0);
    }
}
