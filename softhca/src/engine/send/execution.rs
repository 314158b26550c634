// SPDX-License-Identifier: MIT OR Apache-2.0
//! A send request is executed: its memory is looked up, and it goes to the wire, or is done here if it is about memory
//! windows.
//!
//! Called by: post, retry. Grade: hot. Thread rule: `sq.lock` of the queue pair.

use crate::engine::{
    codes::{
        access,
        qp_type::{RC, UC, XRC_RECV, XRC_SEND},
        wc_status, wr_opcode,
    },
    copy::Pieces,
    fabric::Fabric,
    mr::{table, window},
    qp::shared::QpShared,
    spec::work_request::Sge,
    wire::{
        message::{Message, Outcome},
        transmit,
    },
};

/// Whether this kind of queue pair can do that.
#[inline]
pub(super) fn is_possible(kind: u32, opcode: u32) -> bool {
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
#[inline]
pub(super) fn is_fetch(opcode: u32) -> bool {
    (wr_opcode::RDMA_READ..=wr_opcode::ATOMIC_FETCH_AND_ADD).contains(&opcode)
}

/// Executes a request: on the wire, or here if it is about this side's own memory windows.
#[inline]
pub(super) fn perform(fabric: &Fabric, qp: &QpShared, m: &Message) -> Outcome {
    if m.opcode == wr_opcode::LOCAL_INV || m.opcode == wr_opcode::BIND_MW {
        return manage_window(fabric, qp, m);
    }
    transmit::transmit(fabric, qp, m)
}

/// Binds a memory window or invalidates one. What each field means then is written at `SendWr`.
#[cold]
fn manage_window(fabric: &Fabric, qp: &QpShared, m: &Message) -> Outcome {
    if m.opcode == wr_opcode::LOCAL_INV {
        let is_done = window::invalidate(fabric, m.imm, qp.pd.get(), qp.qpn.get());
        return Outcome::done(if is_done { wc_status::SUCCESS } else { wc_status::MW_BIND_ERR });
    }
    let binding = window::Binding {
        window: m.imm,
        key: m.rkey,
        region: m.swap as u32,
        addr: m.remote_addr,
        len: m.compare_add,
        access: (m.swap >> 32) as u32,
    };
    Outcome::done(window::bind(fabric, qp.pd.get(), qp.qpn.get(), &binding))
}

/// The memory of a request, in the sender's space.
/// # Errors
/// How the request ends, if a registration does not allow the access.
#[inline]
pub(super) fn translate(
    fabric: &Fabric,
    qp: &QpShared,
    opcode: u32,
    list: &[Sge],
    pieces: &mut Pieces,
) -> std::result::Result<(), Outcome> {
    let need = if is_fetch(opcode) { access::LOCAL_WRITE } else { 0 };
    for sge in list {
        if sge.len != 0 {
            let len = u64::from(sge.len);
            let addr = table::find(fabric, sge.lkey, qp.pd.get(), sge.addr, len, need)
                .ok_or(Outcome::done(wc_status::LOC_PROT_ERR))?;
            pieces.push(addr, len);
        }
    }
    Ok(())
}
