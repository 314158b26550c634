// SPDX-License-Identifier: MIT OR Apache-2.0
//! A send request is posted: it is executed at once by the caller, or stored because it must wait.
//!
//! Called by: `qp::object`. Grade: hot. Thread rule: `sq.lock` of the queue pair.

use crate::engine::{
    Errno, Result,
    adapter::ah::Ah,
    clock,
    codes::{
        qp_state::{ERR, RTS, SQD, SQE},
        qp_type::{UD, XRC_SEND},
        send_flags, wc_status,
    },
    copy::{Memory, Pieces},
    fabric::Fabric,
    qp::shared::QpShared,
    send::{
        completion::{self, complete},
        execution::{is_fetch, is_possible, perform, translate},
        refusal,
        request::SendWr,
        retry,
    },
    wire::message::{Message, Outcome, To},
};

/// Posts a request. The caller holds `sq.lock`.
/// # Errors
/// ENOMEM (queue full), EINVAL (state, opcode, pieces, inline size), or what the adapter says instead (`refusal`).
#[inline]
pub(crate) fn post(fabric: &Fabric, qp: &QpShared, wr: &SendWr) -> Result<()> {
    let sq = &qp.sq;
    let state = qp.state.get();
    let kind = qp.kind.get();
    let posted = sq.posted.get();
    let mut answer = Ok(());
    let is_wrong = state < RTS || !is_possible(kind, wr.opcode) || wr.sge.len() > sq.max_sge.get() as usize;
    if is_wrong || refusal::may_lack_atomics(wr.opcode) {
        answer = refusal::judge(fabric, qp, wr, state)?;
    }
    if posted.wrapping_sub(sq.freed.seen()) >= sq.size.get() {
        return Err(Errno(libc::ENOMEM));
    }
    let mut len = 0_u64;
    for sge in wr.sge {
        len += u64::from(sge.len);
    }
    let is_inline = wr.flags & send_flags::INLINE != 0;
    if is_inline && (len > u64::from(sq.max_inline.get()) || is_fetch(wr.opcode)) {
        return Err(refusal::of_inline(fabric, qp, wr));
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
            completion::flush(fabric, qp);
        } else if state == RTS && sq.done.get() == posted {
            retry::take_turns(fabric, qp);
        } else if state != SQD && clock::now() >= sq.deadline.get() {
            retry::run(fabric, qp, true);
        }
        return answer;
    }
    let mut pieces = Pieces::new();
    let outcome = if is_inline {
        for sge in wr.sge {
            pieces.push(sge.addr, u64::from(sge.len));
        }
        None
    } else {
        translate(fabric, qp, wr.opcode, wr.sge, &mut pieces).err()
    };
    let outcome = outcome.unwrap_or_else(|| {
        let memory = Memory { pid: None, pieces: pieces.as_slice() };
        let message = Message {
            opcode: wr.opcode,
            flags: wr.flags,
            imm: wr.imm,
            len: len as u32,
            rkey: wr.rkey,
            remote_addr: wr.remote_addr,
            compare_add: wr.compare_add,
            swap: wr.swap,
            memory,
            to: &to,
        };
        if len > u64::from(sq.max_message.get()) {
            return Outcome::done(wc_status::LOC_LEN_ERR);
        }
        perform(fabric, qp, &message)
    });
    sq.posted.set(posted.wrapping_add(1));
    if let Outcome::Done { status, ready_ns } = outcome {
        complete(fabric, qp, wr.wr_id, wr.opcode, wr.flags, len as u32, status, ready_ns);
    } else {
        retry::store(fabric, qp, posted, wr, &to, len as u32);
        retry::begin(fabric, qp, outcome);
    }
    Ok(())
}

/// Where a datagram goes.
#[inline]
fn to_address(ah: &Ah, wr: &SendWr) -> To {
    let (device, port) = ah.to.unwrap_or_default();
    To {
        address: *ah.attr(),
        device,
        port,
        qpn: wr.remote_qpn,
        qkey: wr.remote_qkey,
        pd: ah.pd,
        srqn: 0,
        handle: ah.handle,
    }
}
