// SPDX-License-Identifier: MIT OR Apache-2.0
//! RDMA and atomics: access to the target's memory at once, as its keys and its queue pair allow.
//!
//! Called by: wire, under the target's `resp.lock`. Grade: hot: one copy within the process, or one system call.
//! Atomics are atomic among each other (`IBV_ATOMIC_HCA`), by one lock of the fabric.

use super::{
    Errno, Result,
    codes::{access, event, qp_type::is_reliable, wc_status, wr_opcode},
    copy::{self, Memory, Pieces},
    counters::{Count, count},
    fabric::{Fabric, PutOff},
    landing, mr, process,
    qp::{self, QpShared},
    wire::{Message, Outcome, Peer, lost, not_ready},
};

/// The memory of `len` bytes at the target, if the key and the queue pair allow it.
#[inline]
fn target(fabric: &Fabric, peer: &Peer, m: &Message, len: u64, need: u32) -> Option<u64> {
    if peer.access.get() & need == 0 {
        return None;
    }
    if len == 0 {
        return Some(0);
    }
    mr::find_remote(fabric, m.rkey, peer.domain(), peer.qpn.get(), m.remote_addr, len, need)
}

pub(crate) fn write(fabric: &Fabric, qp: &QpShared, peer: &Peer, m: &Message, ready_ns: u64) -> Outcome {
    let Some(addr) = target(fabric, peer, m, u64::from(m.len), access::REMOTE_WRITE) else {
        return no_access(fabric, peer);
    };
    let mut taken = None;
    if m.opcode == wr_opcode::RDMA_WRITE_WITH_IMM {
        let queue = peer.queue(fabric);
        let Some(wqe) = landing::take(fabric, peer, queue) else { return not_ready(fabric, qp, peer) };
        taken = Some(wqe);
    }
    if m.len != 0 {
        // The last bytes come last: a program may wait for them by looking.
        let mut place = Pieces::new();
        let last = if m.len > 32 { 8 } else { 0 };
        place.push(addr, u64::from(m.len - last));
        if last != 0 {
            place.push(addr + u64::from(m.len - last), u64::from(last));
        }
        let moved = fabric
            .other_pid(peer.process())
            // SAFETY: the memory of a request under way, and what its key gives to the adapter (`target`).
            .and_then(|pid| unsafe { copy::copy(Memory { pid, pieces: place.as_slice() }, m.memory) });
        if let Err(errno) = moved {
            return unreached(fabric, peer, errno);
        }
    }
    if let Some(wqe) = taken
        && let Some(reserved) = peer.cq(fabric).reserve(fabric)
    {
        reserved.commit(fabric, peer, &landing::arrival(qp, peer, m, wqe, ready_ns));
    }
    Outcome::done(wc_status::SUCCESS)
}

pub(crate) fn read(fabric: &Fabric, qp: &QpShared, peer: &Peer, m: &Message) -> Outcome {
    if qp.max_rd_atomic.get() == 0 {
        return Outcome::done(wc_status::LOC_QP_OP_ERR);
    }
    if peer.max_dest_rd_atomic.get() == 0 {
        return deny(fabric, peer, event::QP_REQ_ERR, wc_status::REM_INV_REQ_ERR);
    }
    let Some(addr) = target(fabric, peer, m, u64::from(m.len), access::REMOTE_READ) else {
        return no_access(fabric, peer);
    };
    if m.len == 0 {
        return Outcome::done(wc_status::SUCCESS);
    }
    let mut place = Pieces::new();
    place.push(addr, u64::from(m.len));
    let moved = fabric
        .other_pid(peer.process())
        // SAFETY: the memory of a request under way, and what its key gives to the adapter (`target`).
        .and_then(|pid| unsafe { copy::copy(m.memory, Memory { pid, pieces: place.as_slice() }) });
    match moved {
        Ok(()) => Outcome::done(wc_status::SUCCESS),
        Err(errno) => unreached(fabric, peer, errno),
    }
}

pub(crate) fn atomic(fabric: &Fabric, qp: &QpShared, peer: &Peer, m: &Message) -> Outcome {
    if qp.max_rd_atomic.get() == 0 {
        return Outcome::done(wc_status::LOC_QP_OP_ERR);
    }
    if m.len < 8 {
        return Outcome::done(wc_status::LOC_LEN_ERR);
    }
    if peer.max_dest_rd_atomic.get() == 0 || !m.remote_addr.is_multiple_of(8) {
        return deny(fabric, peer, event::QP_REQ_ERR, wc_status::REM_INV_REQ_ERR);
    }
    let Some(addr) = target(fabric, peer, m, 8, access::REMOTE_ATOMIC) else {
        return no_access(fabric, peer);
    };
    match exchange(fabric, peer, m, addr) {
        Ok(()) => Outcome::done(wc_status::SUCCESS),
        Err(errno) => unreached(fabric, peer, errno),
    }
}

/// Reads, computes and writes 8 bytes of the target under the fabric's lock for atomics, then hands out what was there.
fn exchange(fabric: &Fabric, peer: &Peer, m: &Message, addr: u64) -> Result<()> {
    let pid = fabric.other_pid(peer.process())?;
    let mut before = 0_u64;
    let mut after: u64;
    let mut place = Pieces::new();
    place.push(addr, 8);
    let there = Memory { pid, pieces: place.as_slice() };
    let here = |word: *mut u64| {
        let mut piece = Pieces::new();
        piece.push(word as u64, 8);
        piece
    };
    {
        let _one_at_a_time = fabric.region().header().atomics.0.lock(fabric);
        let into = here(&raw mut before);
        // SAFETY: a local, and what the request's key gives to the adapter (`target`); here and below.
        unsafe { copy::copy(Memory { pid: None, pieces: into.as_slice() }, there) }?;
        after = match m.opcode {
            wr_opcode::ATOMIC_FETCH_AND_ADD => before.wrapping_add(m.compare_add),
            _ if before == m.compare_add => m.swap,
            _ => before,
        };
        let from = here(&raw mut after);
        // SAFETY: as above.
        unsafe { copy::copy(there, Memory { pid: None, pieces: from.as_slice() }) }?;
    }
    let from = here(&raw mut before);
    // SAFETY: a local, and the memory of a request under way.
    unsafe { copy::copy(m.memory, Memory { pid: None, pieces: from.as_slice() }) }
}

/// An access that the answering side does not allow; it stops and tells its owner.
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
    qp::fail_later(fabric, peer);
    Outcome::done(status)
}

/// The key, its rights or the memory behind it do not allow an access.
#[cold]
pub(crate) fn no_access(fabric: &Fabric, peer: &Peer) -> Outcome {
    count(fabric, peer, Count::ResponderAccess);
    deny(fabric, peer, event::QP_ACCESS_ERR, wc_status::REM_ACCESS_ERR)
}

/// The target's memory was not reached: it is not mapped, or see [`cannot_copy`].
#[cold]
fn unreached(fabric: &Fabric, peer: &Peer, errno: Errno) -> Outcome {
    if errno == Errno(libc::EFAULT) { no_access(fabric, peer) } else { cannot_copy(fabric, peer, errno) }
}

/// The other process cannot be reached: dead, or not ours to touch.
#[cold]
pub(crate) fn cannot_copy(fabric: &Fabric, peer: &Peer, errno: Errno) -> Outcome {
    if errno == Errno(libc::EPERM) {
        static ONCE: std::sync::Once = std::sync::Once::new();
        let token = peer.process();
        let pid = process::pid_of(fabric.region(), token).unwrap_or(0);
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
    fabric.put_off(PutOff::Bury(peer.process()));
    lost(peer)
}
