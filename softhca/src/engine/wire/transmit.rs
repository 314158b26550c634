// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transmission: brings a request to its target queue pair, or loses it. Called by: send, in any process, under the
//! sender's `sq.lock`. Grade: hot. Thread rule: the peer's `resp.lock` guards it and keeps its queues in place.

use crate::engine::codes::qp_state::{RTR, SQE};
use crate::engine::codes::qp_type::{UD, XRC_SEND};
use crate::engine::codes::{answering, event, is_reliable, wc_status, wr_opcode};
use crate::engine::faults::verdict::{Verdict, judge};
use crate::engine::recv::xrc;
use crate::engine::wire::responder::{Peer, deny, lost, not_ready, scripted};
use crate::engine::wire::{datagram, rdma, receive};
use crate::engine::{Count, Fabric, Message, Outcome, QpShared, place};

#[inline]
pub(crate) fn transmit(fabric: &Fabric, qp: &QpShared, m: &Message) -> Outcome {
    if qp.kind.get() == UD {
        return datagram::transmit(fabric, qp, m);
    }
    let number = qp.dest_qpn.get();
    let peer = place(fabric, number);
    let held = peer.lock_answers(fabric);
    let is_reached = peer.qpn.get() == number
        && peer.dest_qpn.get() == qp.qpn.get()
        && peer.state.get().wrapping_sub(RTR) <= SQE - RTR
        && peer.device.get() == qp.to_device.get()
        && peer.port.get() == qp.to_port.get()
        && peer.kind.get() == answering(qp.kind.get())
        && peer.shares_partition(qp)
        && fabric.is_active(qp.device.get(), qp.port.get())
        && fabric.is_active(peer.device.get(), peer.port.get());
    if !is_reached {
        drop(held);
        return lost(qp);
    }
    let mut ready_ns = 0;
    if fabric.has_faults || fabric.has_model {
        match judge(fabric, qp, (peer.device.get(), peer.port.get()), m.len, Some(peer)) {
            // The responder knows the second packet of `Twice` by its number: it answers without another execution.
            Verdict::Pass(ready) => ready_ns = ready,
            Verdict::Twice(ready) => {
                ready_ns = ready;
                peer.count(fabric, Count::DuplicateRequest);
            }
            Verdict::Lost => return lost(qp),
            Verdict::NotReady => return not_ready(fabric, qp, peer),
            Verdict::Status(status) => return scripted(fabric, qp, status),
        }
    }
    // Packets count: one for each path MTU of payload, at least one.
    let mtu_bits = qp.mtu_bits.get();
    let packets = if m.len == 0 { 1 } else { ((m.len - 1) >> mtu_bits) + 1 };
    let psn = qp.sq.psn.get();
    let ahead = psn.wrapping_sub(peer.resp.psn.get()) & 0xff_ffff;
    if ahead != 0 {
        if is_reliable(qp.kind.get()) {
            if ahead >= 1 << 23 {
                // A packet of the past: answered, and not executed again.
                peer.count(fabric, Count::DuplicateRequest);
                qp.sq.psn.set((psn + packets) & 0xff_ffff);
                return Outcome::done(wc_status::SUCCESS);
            }
            return Outcome::Lost;
        }
        peer.resp.psn.set(psn); // unreliable: lost packets stay lost
    }
    if peer.resp.established.get() == 0 {
        peer.resp.established.set(1);
        if peer.state.get() == RTR {
            peer.raise(fabric, event::COMM_EST);
        }
    }
    let outcome = if qp.kind.get() == XRC_SEND {
        execute_xrc(fabric, qp, peer, m, ready_ns)
    } else {
        execute(fabric, qp, &Peer { qp: peer, xrc: None }, m, ready_ns)
    };
    match outcome {
        Outcome::Done { status: wc_status::SUCCESS, .. } => {
            let next = (psn + packets) & 0xff_ffff;
            // In this order: if this process dies in between, the packet is one of the past, which is answered.
            peer.resp.psn.set(next);
            qp.sq.psn.publish(next);
            Outcome::Done { status: wc_status::SUCCESS, ready_ns }
        }
        Outcome::Done { .. } | Outcome::NotReady(_) | Outcome::Lost => outcome,
    }
}

#[inline]
fn execute(fabric: &Fabric, qp: &QpShared, peer: &Peer, m: &Message, ready_ns: u64) -> Outcome {
    match m.what.opcode {
        wr_opcode::SEND | wr_opcode::SEND_WITH_IMM | wr_opcode::SEND_WITH_INV => {
            receive::receive(fabric, qp, peer, m, ready_ns)
        }
        wr_opcode::RDMA_WRITE | wr_opcode::RDMA_WRITE_WITH_IMM => rdma::write(fabric, qp, peer, m, ready_ns),
        wr_opcode::RDMA_READ => rdma::read(fabric, qp, peer, m),
        _ => rdma::atomic(fabric, qp, peer, m),
    }
}

/// Executes a request that names a shared receive queue, which must be of the domain of the queue pair.
#[inline(never)]
fn execute_xrc(fabric: &Fabric, qp: &QpShared, peer: &QpShared, m: &Message, ready_ns: u64) -> Outcome {
    peer.resp.srqn.set(m.to.srqn);
    match xrc::find(fabric, m.to.srqn, peer.xrcd.get()) {
        // Both memories belong to other processes, so this one cannot copy: the sender tries again by its own timer.
        Some((queue, _held)) if m.memory.pid.is_some() && queue.owner.get() != fabric.token() => Outcome::Lost,
        Some((queue, _held)) => execute(fabric, qp, &Peer { qp: peer, xrc: Some(queue) }, m, ready_ns),
        None => deny(fabric, &Peer { qp: peer, xrc: None }, event::QP_REQ_ERR, wc_status::REM_INV_REQ_ERR),
    }
}
