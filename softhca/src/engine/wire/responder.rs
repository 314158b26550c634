// SPDX-License-Identifier: MIT OR Apache-2.0
//! The answering side of a request: its queues and memory, and its answers to requests that it does not execute. Called
//! by: this folder. Grade: `Peer` is hot; refusals are cold. Thread rule: under the answering queue pair's `resp.lock`.

use crate::engine::codes::{event, is_reliable, wc_status};
use crate::engine::recv::xrc::XrcQueue;
use crate::engine::{
    Count, CqShared, Deferred, Errno, Fabric, Memory, Outcome, QpShared, RecvQueue, copy, fail_later, failed_recv,
};

/// A queue pair and, for XRC, the shared receive queue of the request, whose memory and completion queue then count.
pub(crate) struct Peer<'a> {
    pub(crate) qp: &'a QpShared,
    pub(crate) xrc: Option<&'static XrcQueue>,
}

impl std::ops::Deref for Peer<'_> {
    type Target = QpShared;

    fn deref(&self) -> &QpShared {
        self.qp
    }
}

impl Peer<'_> {
    pub(crate) fn queue(&self, fabric: &Fabric) -> &'static RecvQueue {
        self.xrc.map_or_else(|| self.qp.recv_queue(fabric), |xrc| xrc.queue(fabric))
    }

    pub(crate) fn cq(&self, fabric: &Fabric) -> &'static CqShared {
        self.xrc.map_or_else(|| self.qp.recv_cq(fabric), |xrc| xrc.cq(fabric))
    }

    /// Returns the protection domain that keys must be of.
    pub(crate) fn domain(&self) -> u32 {
        self.xrc.map_or_else(|| self.qp.pd.get(), |xrc| xrc.pd.get())
    }

    /// Returns the token of the process whose memory it is.
    pub(crate) fn process(&self) -> u32 {
        self.xrc.map_or_else(|| self.qp.owner.get(), |xrc| xrc.owner.get())
    }

    /// Returns the receive queue's name in a completion: its offset for XRC, else 0.
    pub(crate) fn xrc_queue(&self) -> u64 {
        self.xrc.map_or(0, |xrc| xrc.queue.get())
    }
}

/// Refuses an access that the answering side does not allow. That side stops and tells its owner.
#[cold]
pub(crate) fn deny(fabric: &Fabric, peer: &Peer, event: u32, status: u32) -> Outcome {
    if !is_reliable(peer.kind.get()) {
        return Outcome::done(wc_status::SUCCESS); // unreliable: dropped
    }
    let ways = peer.behaviour(fabric);
    if ways.flush_needs_async_read && ways.async_events.raises(event) {
        peer.withheld.set(1);
    }
    peer.raise(fabric, event);
    peer.fail_receives(fabric);
    fail_later(fabric, peer);
    Outcome::done(status)
}

/// Refuses an access that the key, its rights or the memory behind it do not allow.
#[cold]
pub(crate) fn no_access(fabric: &Fabric, peer: &Peer) -> Outcome {
    peer.count(fabric, Count::ResponderAccess);
    deny(fabric, peer, event::QP_ACCESS_ERR, wc_status::REM_ACCESS_ERR)
}

/// Returns the outcome of a copy between the memory of a request and that of its target: one of them is not mapped, or
/// see [`cannot_copy`].
#[cold]
pub(super) fn unreached(fabric: &Fabric, peer: &Peer, own: Memory, target: &[libc::iovec], errno: Errno) -> Outcome {
    match fabric.other_pid(peer.process()) {
        Ok(pid) if errno == Errno(libc::EFAULT) => {
            if copy::is_gone(own, Memory { pid, pieces: target }) {
                return Outcome::done(wc_status::LOC_PROT_ERR);
            }
            no_access(fabric, peer)
        }
        _ => cannot_copy(fabric, peer, errno),
    }
}

/// Returns the outcome of a copy that the kernel refused: the other process is dead, or this one may not access it.
#[cold]
pub(crate) fn cannot_copy(fabric: &Fabric, peer: &Peer, errno: Errno) -> Outcome {
    if errno == Errno(libc::EPERM) {
        static ONCE: std::sync::Once = std::sync::Once::new();
        let token = peer.process();
        let pid = fabric.pid_of(token).unwrap_or(0);
        ONCE.call_once(|| {
            eprintln!(
                "softhca: process {} may not copy to or from process {pid} (process_vm_writev: EPERM). Both must run as \
                 the same user; if they do, look at /proc/sys/kernel/yama/ptrace_scope (2 or 3 forbid it) and at the \
                 container's seccomp profile.",
                std::process::id()
            );
        });
        return Outcome::done(wc_status::LOC_QP_OP_ERR);
    }
    fabric.deferred.add(Deferred::Bury(peer.process()));
    lost(peer)
}

/// Ends a receive in an error at the answering side, which stops.
#[cold]
pub(super) fn refuse(fabric: &Fabric, peer: &Peer, wqe: u32, status: u32) {
    peer.count(fabric, Count::ResponderError);
    if let Some(reserved) = peer.cq(fabric).reserve(fabric) {
        reserved.commit(fabric, peer, &failed_recv(status, wqe, peer.xrc_queue()));
    }
    peer.fail_receives(fabric);
    fail_later(fabric, peer);
}

/// Ends the request with the status of a rule. A flushed request means that the queue pair has failed.
#[cold]
pub(crate) fn scripted(fabric: &Fabric, qp: &QpShared, status: u32) -> Outcome {
    if status == wc_status::WR_FLUSH_ERR {
        fail_later(fabric, qp);
    }
    Outcome::done(status)
}

/// Returns the outcome of a request without a peer: reliable senders wait for the answer, others learn nothing.
#[cold]
pub(crate) fn lost(qp: &QpShared) -> Outcome {
    if is_reliable(qp.kind.get()) { Outcome::Lost } else { Outcome::done(wc_status::SUCCESS) }
}

/// Returns the outcome of a send that finds no receive request. Reliable senders try again; they count this when they
/// begin to wait, not at each try.
#[cold]
pub(crate) fn not_ready(fabric: &Fabric, qp: &QpShared, peer: &QpShared) -> Outcome {
    if !is_reliable(qp.kind.get()) {
        peer.count(fabric, Count::OutOfBuffer);
        return Outcome::done(wc_status::SUCCESS);
    }
    Outcome::NotReady(rnr_time(peer.min_rnr_timer.get()))
}

/// Converts a code of the RNR NAK timer to nanoseconds (InfiniBand specification 9.7.5.2.8).
fn rnr_time(code: u32) -> u64 {
    const TEN_US: [u64; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
        4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    TEN_US[code as usize & 31] * 10_000
}
