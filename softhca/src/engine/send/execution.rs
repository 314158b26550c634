// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executes a send request: looks up its memory, and gives it to the wire, or executes it here if it concerns memory
//! windows. Then counts the request and, if necessary, completes it; a failure stops the queue and flushes the rest.
//! Called by: post, retry, code that stops a queue pair (`fail`). Grade: hot. Thread rule: `sq.lock` of the queue pair.

use crate::engine::codes::qp_state::{RTS, SQE};
use crate::engine::codes::qp_type::{RC, UC, XRC_RECV, XRC_SEND};
use crate::engine::codes::{access, event, is_reliable, send_flags, wc_opcode, wc_status, wr_opcode};
use crate::engine::mr::{table, window};
use crate::engine::send::queue::NOTHING;
use crate::engine::wire::transmit;
use crate::engine::{Completion, Count, Fabric, Message, Outcome, Pieces, QpShared, Sge, clock};

/// Whether a queue pair of this type has the operation.
#[inline]
pub(crate) fn is_possible(kind: u32, opcode: u32) -> bool {
    match opcode {
        wr_opcode::SEND | wr_opcode::SEND_WITH_IMM => kind != XRC_RECV,
        wr_opcode::RDMA_WRITE | wr_opcode::RDMA_WRITE_WITH_IMM => matches!(kind, RC | UC | XRC_SEND),
        wr_opcode::RDMA_READ | wr_opcode::ATOMIC_CMP_AND_SWP | wr_opcode::ATOMIC_FETCH_AND_ADD => {
            matches!(kind, RC | XRC_SEND)
        }
        wr_opcode::LOCAL_INV | wr_opcode::BIND_MW | wr_opcode::SEND_WITH_INV => matches!(kind, RC | UC | XRC_SEND),
        _ => false,
    }
}

/// Whether the request writes to local memory.
pub(super) fn is_fetch(opcode: u32) -> bool {
    (wr_opcode::RDMA_READ..=wr_opcode::ATOMIC_FETCH_AND_ADD).contains(&opcode)
}

#[inline]
pub(super) fn perform(fabric: &Fabric, qp: &QpShared, m: &Message) -> Outcome {
    if m.what.opcode == wr_opcode::LOCAL_INV || m.what.opcode == wr_opcode::BIND_MW {
        return manage_window(fabric, qp, m);
    }
    transmit::transmit(fabric, qp, m)
}

/// Binds or invalidates a memory window; `SendWr` describes the meaning of each field then.
#[cold]
fn manage_window(fabric: &Fabric, qp: &QpShared, m: &Message) -> Outcome {
    if m.what.opcode == wr_opcode::LOCAL_INV {
        let is_done = window::invalidate(fabric, m.what.imm, qp.pd.get(), qp.qpn.get());
        return Outcome::done(if is_done { wc_status::SUCCESS } else { wc_status::MW_BIND_ERR });
    }
    let binding = window::Binding {
        window: m.what.imm,
        key: m.what.rkey,
        region: m.what.swap as u32,
        addr: m.what.remote_addr,
        len: m.what.compare_add,
        access: (m.what.swap >> 32) as u32,
    };
    Outcome::done(window::bind(fabric, qp.pd.get(), qp.qpn.get(), &binding))
}

/// Looks up the memory of a request in the sender's space; `false` if a registration forbids it.
#[inline]
pub(super) fn translate(fabric: &Fabric, qp: &QpShared, opcode: u32, list: &[Sge], pieces: &mut Pieces) -> bool {
    let need = if is_fetch(opcode) { access::LOCAL_WRITE } else { 0 };
    for sge in list.iter().filter(|sge| sge.length != 0) {
        let len = u64::from(sge.length);
        let Some(addr) = table::find(fabric, sge.lkey, qp.pd.get(), sge.addr, len, need) else { return false };
        pieces.push(addr, len);
    }
    true
}

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

/// Ends the oldest request: counts it, and completes it if it failed or asked for that. A failure stops the queue.
#[expect(clippy::too_many_arguments, reason = "the fields of a request, stored or not")]
#[inline(always)]
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
    let done = qp.sq.done.get().wrapping_add(1);
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
        reserved.commit(fabric, qp, &completion);
    } else {
        qp.sq.done.set(done);
    }
    if status != wc_status::SUCCESS && status != wc_status::WR_FLUSH_ERR {
        stop(fabric, qp, status);
    }
}

/// Stops after a send has failed: reliable queue pairs enter the error state, others only stop sending.
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
        let answers = qp.lock_answers(fabric);
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
    let answers = qp.lock_answers(fabric);
    qp.fail_receives(fabric);
    drop(answers);
    flush(fabric, qp);
}

#[cold]
pub(super) fn flush(fabric: &Fabric, qp: &QpShared) {
    let sq = &qp.sq;
    while qp.withheld.get() == 0 && sq.done.get() != sq.posted.get() {
        // SAFETY: a request between `done` and `posted` was written, under the lock that the caller holds.
        let kept = unsafe { sq.request(fabric, sq.done.get()).read() };
        complete(fabric, qp, kept.wr_id, kept.what.opcode, kept.what.flags, kept.len, wc_status::WR_FLUSH_ERR, 0);
    }
    // Last: if this process dies before, the owner's timer goes on.
    sq.wait.set(NOTHING);
    sq.deadline.set(clock::NEVER);
}
