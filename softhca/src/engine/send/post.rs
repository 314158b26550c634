// SPDX-License-Identifier: MIT OR Apache-2.0
//! A send request, and its posting: the caller executes it at once, stores it if it must wait, or refuses it as the
//! adapter would. Called by: `qp::object`; `verbs` builds the request. Grade: hot, without an allocation; a correct
//! request runs no code of refusals, except that atomics look once at the adapter. Thread rule: `sq.lock` of the queue
//! pair. Values are in the byte order of the host unless said otherwise.

use crate::behaviour::{AtomicAccess, SendBeforeRts};
use crate::engine::codes::qp_state::{ERR, RTS, SQD, SQE};
use crate::engine::codes::qp_type::{UD, XRC_SEND};
use crate::engine::codes::{send_flags, wc_status, wr_opcode};
use crate::engine::send::execution::{complete, is_fetch, is_possible, perform, translate};
use crate::engine::send::queue::NOTHING;
use crate::engine::send::{execution, retry};
use crate::engine::wire::{Operation, To};
use crate::engine::{Ah, Errno, Fabric, Message, Outcome, Pieces, QpShared, Result, Sge, clock};
use crate::limits::Atomics;

/// A send work request.
#[derive(Clone, Copy, Default)]
pub struct SendWr<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// `codes::wr_opcode`.
    pub opcode: u32,
    /// `codes::send_flags`.
    pub flags: u32,
    /// Immediate data, as it travels (big-endian bytes, taken as they are). `SEND_WITH_INV` and `LOCAL_INV`: the key to
    /// invalidate. `BIND_MW`: the window, by its present key.
    pub imm: u32,
    /// The pieces; with the flag INLINE their bytes are read during the call.
    pub sge: &'a [Sge],
    /// Remote address of RDMA and atomics. `BIND_MW`: the first address of the window.
    pub remote_addr: u64,
    /// Remote key of RDMA and atomics. `BIND_MW`: the key that the window is to get.
    pub rkey: u32,
    /// Compare value of compare-and-swap, the addend of fetch-and-add. `BIND_MW`: bytes of the window.
    pub compare_add: u64,
    /// Swap value. `BIND_MW`: local key of the region, and rights (`codes::access`) in the upper half.
    pub swap: u64,
    /// UD: the address.
    pub ah: Option<&'a Ah>,
    /// UD: the queue pair there.
    pub remote_qpn: u32,
    /// UD: the queue key; if its top bit is set, the queue pair's own key is sent.
    pub remote_qkey: u32,
    /// XRC: the shared receive queue there.
    pub remote_srqn: u32,
}

impl SendWr<'_> {
    /// A send of nothing, to be filled in.
    pub fn empty() -> Self {
        SendWr { opcode: wr_opcode::SEND, ..SendWr::default() }
    }

    pub(super) fn operation(&self) -> Operation {
        let Self { opcode, flags, imm, rkey, remote_addr, compare_add, swap, .. } = *self;
        Operation { opcode, flags, imm, rkey, remote_addr, compare_add, swap }
    }
}

/// Posts a request. The caller holds `sq.lock`. ENOMEM (queue full), EINVAL (state, opcode, pieces, inline size), or
/// the adapter's own error (`judge`).
#[inline]
pub(crate) fn post(fabric: &Fabric, qp: &QpShared, wr: &SendWr) -> Result<()> {
    let sq = &qp.sq;
    let state = qp.state.get();
    let kind = qp.kind.get();
    let posted = sq.posted.get();
    let mut answer = Ok(());
    let is_wrong = state < RTS || !is_possible(kind, wr.opcode) || wr.sge.len() > sq.max_sge.get() as usize;
    if is_wrong || is_atomic(wr.opcode) {
        answer = judge(fabric, qp, wr, state)?;
    }
    if posted.wrapping_sub(sq.freed.seen()) >= sq.size.get() {
        return Err(Errno(libc::ENOMEM));
    }
    let len: u64 = wr.sge.iter().map(|sge| u64::from(sge.length)).sum();
    let is_inline = wr.flags & send_flags::INLINE != 0;
    if is_inline && (len > u64::from(sq.max_inline.get()) || is_fetch(wr.opcode)) {
        return Err(of_inline(fabric, qp, wr));
    }
    let to = match wr.ah {
        Some(ah) if kind == UD => to_address(ah, wr),
        None if kind == UD => return Err(Errno(libc::EINVAL)),
        _ if kind == XRC_SEND => To { srqn: wr.remote_srqn, ..To::default() },
        _ => To::default(),
    };
    if state != RTS || sq.done.get() != posted || to.handle != 0 {
        retry::store(fabric, qp, posted, wr, &to, len as u32);
        sq.posted.set(posted.wrapping_add(1));
        if state == ERR || state == SQE {
            execution::flush(fabric, qp);
        } else if state == RTS && sq.done.get() == posted {
            retry::take_turns(fabric, qp);
        } else if state != SQD && clock::now() >= sq.deadline.get() {
            retry::run(fabric, qp, true);
        }
        return answer;
    }
    let mut pieces = Pieces::new();
    if is_inline {
        pieces.extend(wr.sge);
    }
    let outcome = if !is_inline && !translate(fabric, qp, wr.opcode, wr.sge, &mut pieces) {
        Outcome::done(wc_status::LOC_PROT_ERR)
    } else if len > u64::from(sq.max_message.get()) {
        Outcome::done(wc_status::LOC_LEN_ERR)
    } else {
        let message = Message { what: wr.operation(), len: len as u32, memory: pieces.here(), to: &to };
        perform(fabric, qp, &message)
    };
    sq.posted.set(posted.wrapping_add(1));
    if let Outcome::Done { status, ready_ns } = outcome {
        complete(fabric, qp, wr.wr_id, wr.opcode, wr.flags, len as u32, status, ready_ns);
    } else {
        retry::store(fabric, qp, posted, wr, &to, len as u32);
        retry::wait(fabric, qp, outcome, NOTHING, true);
    }
    Ok(())
}

#[inline]
fn to_address(ah: &Ah, wr: &SendWr) -> To {
    let (device, port) = ah.to.unwrap_or_default();
    To {
        address: ah.attr,
        device,
        port,
        qpn: wr.remote_qpn,
        qkey: wr.remote_qkey,
        pd: ah.pd,
        srqn: 0,
        handle: ah.handle,
    }
}

const EINVAL: Errno = Errno(libc::EINVAL);

pub(crate) fn is_atomic(opcode: u32) -> bool {
    matches!(opcode, wr_opcode::ATOMIC_CMP_AND_SWP | wr_opcode::ATOMIC_FETCH_AND_ADD)
}

/// Judges a request that may be wrong. The outer result is an error if the adapter does not queue the request; the
/// inner one is the answer to the program if it does.
#[cold]
pub(super) fn judge(fabric: &Fabric, qp: &QpShared, wr: &SendWr, state: u32) -> Result<Result<()>> {
    let ways = qp.behaviour(fabric);
    let limits = &fabric.devices()[qp.device.get() as usize].limits;
    if !is_possible(qp.kind.get(), wr.opcode) {
        return Err(EINVAL);
    }
    if is_atomic(wr.opcode) && limits.atomics == Atomics::None {
        let is_known = ways.atomic_access_without_cap == AtomicAccess::Eopnotsupp;
        return Err(if is_known { Errno(libc::EOPNOTSUPP) } else { EINVAL });
    }
    if wr.sge.len() > qp.sq.max_sge.get() as usize {
        return Err(Errno(ways.errno_sge.number()));
    }
    if state >= RTS {
        return Ok(Ok(()));
    }
    match ways.send_before_rts {
        SendBeforeRts::Einval => Err(EINVAL),
        SendBeforeRts::Enomem => Err(Errno(libc::ENOMEM)),
        SendBeforeRts::EinvalQueued => Ok(Err(EINVAL)),
        SendBeforeRts::Accepted => Ok(Ok(())),
    }
}

/// Returns the error of a request with the flag INLINE whose data is too long, or that sends no data.
#[cold]
pub(super) fn of_inline(fabric: &Fabric, qp: &QpShared, wr: &SendWr) -> Errno {
    if is_fetch(wr.opcode) { EINVAL } else { Errno(qp.behaviour(fabric).errno_inline.number()) }
}
