// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests that are wrong when they are posted: what the adapter says to them.
//!
//! Called by: post. Grade: pending: nothing of it runs for a request that is right, but for atomics one look at the
//! adapter. Thread rule: `sq.lock` of the queue pair.

use crate::{
    behaviour::SendBeforeRts,
    engine::{
        Errno, Result,
        codes::{qp_state::RTS, wr_opcode},
        fabric::Fabric,
        qp::shared::QpShared,
        send::{
            execution::{is_fetch, is_possible},
            request::SendWr,
        },
    },
    limits::Atomics,
};

const EINVAL: Errno = Errno(libc::EINVAL);

/// Whether the request is of a kind that an adapter may not have.
#[inline]
pub(super) fn may_lack_atomics(opcode: u32) -> bool {
    matches!(opcode, wr_opcode::ATOMIC_CMP_AND_SWP | wr_opcode::ATOMIC_FETCH_AND_ADD)
}

/// What is said to a request that may be wrong: an error; or an answer, after which it is queued.
#[cold]
pub(super) fn judge(fabric: &Fabric, qp: &QpShared, wr: &SendWr, state: u32) -> Result<Result<()>> {
    let ways = qp.behaviour(fabric);
    let limits = &fabric.devices()[qp.device.get() as usize].limits;
    if !is_possible(qp.kind.get(), wr.opcode) {
        return Err(EINVAL);
    }
    if may_lack_atomics(wr.opcode) && limits.atomics == Atomics::None {
        return Err(Errno(ways.atomic_access_without_cap.post_errno()));
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

/// The error of a request with the flag INLINE whose data is too long, or that sends no data.
#[cold]
pub(super) fn of_inline(fabric: &Fabric, qp: &QpShared, wr: &SendWr) -> Errno {
    if is_fetch(wr.opcode) { EINVAL } else { Errno(qp.behaviour(fabric).errno_inline.number()) }
}
