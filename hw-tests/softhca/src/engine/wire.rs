// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delivery: a request meets the queue pair it is meant for, or does not.
//!
//! Called by: sendq, with `sq.lock` of the sender held, from whatever process. Calls: landing (sends), rdma (RDMA and
//! atomics), datagram. Grade: hot. Thread rule: everything of the peer happens under its `resp.lock`, which also keeps
//! its queues from going away.

use super::{
    Ah, AhAttr, SendWr,
    codes::{
        event,
        qp_state::{RTR, SQE},
        qp_type::{UD, XRC_SEND, answering, is_reliable},
        wc_status, wr_opcode,
    },
    copy::Memory,
    counters::{Count, count},
    cq::CqShared,
    datagram,
    fabric::Fabric,
    faults::{self, Verdict},
    landing,
    qp::{self, QpShared},
    rdma,
    recv::RecvQueue,
    xrc::{self, XrcQueue},
};

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is over, with this status; its completion is not seen before `ready_ns`.
    Done { status: u32, ready_ns: u64 },
    /// The receiver has no request: try again after so many nanoseconds.
    NotReady(u64),
    /// Nobody answered.
    Lost,
}

impl Outcome {
    #[inline]
    pub(crate) fn done(status: u32) -> Outcome {
        Outcome::Done { status, ready_ns: 0 }
    }
}

/// Where a datagram goes, or which shared receive queue a request of XRC names.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct To {
    pub(crate) address: AhAttr,
    /// Adapter and port (0: nobody has the address).
    pub(crate) device: u32,
    pub(crate) port: u32,
    pub(crate) qpn: u32,
    pub(crate) qkey: u32,
    pub(crate) pd: u32,
    /// XRC: the shared receive queue.
    pub(crate) srqn: u32,
    /// The address handle, if the adapter looks it up when it sends; else 0.
    pub(crate) handle: u32,
}

impl To {
    #[inline]
    pub(crate) fn new(ah: &Ah, wr: &SendWr) -> To {
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
}

/// A request on its way.
pub(crate) struct Message<'a> {
    pub(crate) opcode: u32,
    pub(crate) flags: u32,
    pub(crate) imm: u32,
    pub(crate) len: u32,
    pub(crate) rkey: u32,
    pub(crate) remote_addr: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    /// What is sent, or where to put what is fetched.
    pub(crate) memory: Memory<'a>,
    pub(crate) to: &'a To,
}

/// Who answers: a queue pair and, for XRC, the shared receive queue that the request names, whose memory and completion
/// queue then count.
pub(crate) struct Peer<'a> {
    pub(crate) qp: &'a QpShared,
    pub(crate) xrc: Option<&'static XrcQueue>,
}

impl std::ops::Deref for Peer<'_> {
    type Target = QpShared;

    #[inline]
    fn deref(&self) -> &QpShared {
        self.qp
    }
}

impl Peer<'_> {
    /// Where its receives come from.
    #[inline]
    pub(crate) fn queue(&self, fabric: &Fabric) -> &'static RecvQueue {
        self.xrc.map_or_else(|| self.qp.recv_queue(fabric), |xrc| xrc.queue(fabric))
    }

    /// Where its receives complete.
    #[inline]
    pub(crate) fn cq(&self, fabric: &Fabric) -> &'static CqShared {
        fabric.region().at(self.xrc.map_or_else(|| self.qp.recv_cq.get(), |xrc| xrc.cq.get()))
    }

    /// The protection domain that keys must be of.
    #[inline]
    pub(crate) fn domain(&self) -> u32 {
        self.xrc.map_or_else(|| self.qp.pd.get(), |xrc| xrc.pd.get())
    }

    /// The process (its token) whose memory it is.
    #[inline]
    pub(crate) fn process(&self) -> u32 {
        self.xrc.map_or_else(|| self.qp.owner.get(), |xrc| xrc.owner.get())
    }

    /// What a completion says of the queue: its offset for XRC, else 0.
    #[inline]
    pub(crate) fn xrc_queue(&self) -> u64 {
        self.xrc.map_or(0, |xrc| xrc.queue.get())
    }
}

/// Executes a request.
#[inline]
pub(crate) fn transmit(fabric: &Fabric, qp: &QpShared, m: &Message) -> Outcome {
    if qp.kind.get() == UD {
        return datagram::transmit(fabric, qp, m);
    }
    let number = qp.dest_qpn.get();
    let peer = qp::place(fabric, number);
    let held = peer.resp.lock.lock(fabric);
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
        match faults::on_packet(fabric, qp, peer, m.len) {
            // A repeated packet is known by its number, and answered without being executed again.
            Verdict::Pass(ready) => ready_ns = ready,
            Verdict::Twice(ready) => {
                ready_ns = ready;
                count(fabric, peer, Count::DuplicateRequest);
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
                count(fabric, peer, Count::DuplicateRequest);
                qp.sq.psn.set((psn + packets) & 0xff_ffff);
                return Outcome::done(wc_status::SUCCESS);
            }
            return Outcome::Lost;
        }
        peer.resp.psn.set(psn); // unreliable: what is missing is missing
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
            qp.sq.psn.set(next);
            peer.resp.psn.set(next);
            Outcome::Done { status: wc_status::SUCCESS, ready_ns }
        }
        Outcome::Done { .. } | Outcome::NotReady(_) | Outcome::Lost => outcome,
    }
}

/// Does what the request says to whoever answers.
#[inline]
fn execute(fabric: &Fabric, qp: &QpShared, peer: &Peer, m: &Message, ready_ns: u64) -> Outcome {
    match m.opcode {
        wr_opcode::SEND | wr_opcode::SEND_WITH_IMM => landing::receive(fabric, qp, peer, m, ready_ns),
        wr_opcode::RDMA_WRITE | wr_opcode::RDMA_WRITE_WITH_IMM => rdma::write(fabric, qp, peer, m, ready_ns),
        wr_opcode::SEND_WITH_INV => landing::receive_invalidating(fabric, qp, peer, m, ready_ns),
        wr_opcode::RDMA_READ => rdma::read(fabric, qp, peer, m),
        _ => rdma::atomic(fabric, qp, peer, m),
    }
}

/// The same for a request that names a shared receive queue, which must be of the domain of the queue pair.
#[inline(never)]
fn execute_xrc(fabric: &Fabric, qp: &QpShared, peer: &QpShared, m: &Message, ready_ns: u64) -> Outcome {
    match xrc::find(fabric, m.to.srqn, peer.xrcd.get()) {
        // Neither memory is this process's: the sender's own timer does it.
        Some((queue, _held)) if m.memory.pid.is_some() && queue.owner.get() != fabric.token() => Outcome::Lost,
        Some((queue, _held)) => execute(fabric, qp, &Peer { qp: peer, xrc: Some(queue) }, m, ready_ns),
        None => rdma::deny(fabric, &Peer { qp: peer, xrc: None }, event::QP_REQ_ERR, wc_status::REM_INV_REQ_ERR),
    }
}

/// A rule ends the request. What is flushed is so because the queue pair has failed.
#[cold]
pub(crate) fn scripted(fabric: &Fabric, qp: &QpShared, status: u32) -> Outcome {
    if status == wc_status::WR_FLUSH_ERR {
        qp::fail_later(fabric, qp);
    }
    Outcome::done(status)
}

/// Nobody there: reliable senders wait for an answer, others never know.
#[cold]
pub(crate) fn lost(qp: &QpShared) -> Outcome {
    if is_reliable(qp.kind.get()) { Outcome::Lost } else { Outcome::done(wc_status::SUCCESS) }
}

/// There is no request: reliable senders are told to come again (and count it when they wait, since they may try
/// early).
#[cold]
pub(crate) fn not_ready(fabric: &Fabric, qp: &QpShared, peer: &QpShared) -> Outcome {
    if !is_reliable(qp.kind.get()) {
        count(fabric, peer, Count::OutOfBuffer);
        return Outcome::done(wc_status::SUCCESS);
    }
    Outcome::NotReady(rnr_time(peer.min_rnr_timer.get()))
}

/// RNR NAK timer code to nanoseconds (InfiniBand specification 9.7.5.2.8).
fn rnr_time(code: u32) -> u64 {
    const TEN_US: [u64; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
        4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    TEN_US[code as usize & 31] * 10_000
}
