// SPDX-License-Identifier: MIT OR Apache-2.0
//! RDMA and atomics: access to the target's memory, as its keys and its queue pair allow. Called by: transmit, under
//! the target's `resp.lock`. Grade: hot: one copy within the process, or one system call. Thread rule: as transmit.
//! Atomics are atomic among each other (`IBV_ATOMIC_HCA`), by one lock of the fabric.

use crate::engine::codes::{access, event, wc_status, wr_opcode};
use crate::engine::mr::table;
use crate::engine::wire::receive;
use crate::engine::wire::responder::{Peer, deny, no_access, not_ready, unreached};
use crate::engine::{Fabric, Memory, Message, Outcome, Pieces, QpShared, Result, copy};

/// Returns the address of `len` bytes at the target, or refuses a request that the queue pair or the key does not allow
/// (InfiniBand specification 11.6.2: `Remote Invalid Request Error`, `Remote Access Error`).
#[inline]
fn target(fabric: &Fabric, peer: &Peer, m: &Message, len: u64, need: u32) -> std::result::Result<u64, Outcome> {
    if peer.access.get() & need == 0 {
        return Err(deny(fabric, peer, event::QP_REQ_ERR, wc_status::REM_INV_REQ_ERR));
    }
    if len == 0 {
        return Ok(0);
    }
    table::find_remote(fabric, m.what.rkey, peer.domain(), peer.qpn.get(), m.what.remote_addr, len, need)
        .ok_or_else(|| no_access(fabric, peer))
}

pub(crate) fn write(fabric: &Fabric, qp: &QpShared, peer: &Peer, m: &Message, ready_ns: u64) -> Outcome {
    let addr = match target(fabric, peer, m, u64::from(m.len), access::REMOTE_WRITE) {
        Ok(addr) => addr,
        Err(refused) => return refused,
    };
    let mut taken = None;
    if m.what.opcode == wr_opcode::RDMA_WRITE_WITH_IMM {
        let queue = peer.queue(fabric);
        let Some(wqe) = receive::take(fabric, peer, queue) else { return not_ready(fabric, qp, peer) };
        taken = Some(wqe);
    }
    if m.len != 0 {
        // The last bytes are written last: a program may wait for them by polling memory.
        let last = if m.len > 32 { 8 } else { 0 };
        let mut place = Pieces::one(addr, u64::from(m.len - last));
        if last != 0 {
            place.push(addr + u64::from(m.len - last), u64::from(last));
        }
        let moved = fabric
            .other_pid(peer.process())
            // SAFETY: the memory of a request under way, and what its key gives to the adapter (`target`).
            .and_then(|pid| unsafe { copy::copy(Memory { pid, pieces: place.as_slice() }, m.memory) });
        if let Err(errno) = moved {
            if taken.is_some() {
                peer.put_back(fabric, peer.queue(fabric));
            }
            return unreached(fabric, peer, m.memory, place.as_slice(), errno);
        }
    }
    if let Some(wqe) = taken
        && let Some(reserved) = peer.cq(fabric).reserve(fabric)
    {
        reserved.commit(fabric, peer, &receive::arrival(qp, peer, m, wqe, ready_ns));
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
    let addr = match target(fabric, peer, m, u64::from(m.len), access::REMOTE_READ) {
        Ok(addr) => addr,
        Err(refused) => return refused,
    };
    if m.len == 0 {
        return Outcome::done(wc_status::SUCCESS);
    }
    let place = Pieces::one(addr, u64::from(m.len));
    let moved = fabric
        .other_pid(peer.process())
        // SAFETY: the memory of a request under way, and what its key gives to the adapter (`target`).
        .and_then(|pid| unsafe { copy::copy(m.memory, Memory { pid, pieces: place.as_slice() }) });
    match moved {
        Ok(()) => Outcome::done(wc_status::SUCCESS),
        Err(errno) => unreached(fabric, peer, m.memory, place.as_slice(), errno),
    }
}

pub(crate) fn atomic(fabric: &Fabric, qp: &QpShared, peer: &Peer, m: &Message) -> Outcome {
    if qp.max_rd_atomic.get() == 0 {
        return Outcome::done(wc_status::LOC_QP_OP_ERR);
    }
    if m.len < 8 {
        return Outcome::done(wc_status::LOC_LEN_ERR);
    }
    if peer.max_dest_rd_atomic.get() == 0 || !m.what.remote_addr.is_multiple_of(8) {
        return deny(fabric, peer, event::QP_REQ_ERR, wc_status::REM_INV_REQ_ERR);
    }
    let addr = match target(fabric, peer, m, 8, access::REMOTE_ATOMIC) {
        Ok(addr) => addr,
        Err(refused) => return refused,
    };
    let place = Pieces::one(addr, 8);
    match exchange(fabric, peer, m, place.as_slice()) {
        Ok(()) => Outcome::done(wc_status::SUCCESS),
        Err(errno) => unreached(fabric, peer, m.memory, place.as_slice(), errno),
    }
}

/// Reads, computes and writes 8 bytes of the target under the fabric's lock, then gives the requester their old value.
fn exchange(fabric: &Fabric, peer: &Peer, m: &Message, pieces: &[libc::iovec]) -> Result<()> {
    let pid = fabric.other_pid(peer.process())?;
    let mut before = 0_u64;
    let mut after: u64;
    let there = Memory { pid, pieces };
    let here = |word: *mut u64| Pieces::one(word as u64, 8);
    {
        let _one_at_a_time = fabric.header().atomics.0.lock(fabric);
        let into = here(&raw mut before);
        // SAFETY: a local, and what the request's key gives to the adapter (`target`); here and below.
        unsafe { copy::copy(into.here(), there) }?;
        after = match m.what.opcode {
            wr_opcode::ATOMIC_FETCH_AND_ADD => before.wrapping_add(m.what.compare_add),
            _ if before == m.what.compare_add => m.what.swap,
            _ => before,
        };
        let from = here(&raw mut after);
        // SAFETY: a local, and what the request's key gives to the adapter (`target`).
        unsafe { copy::copy(there, from.here()) }?;
    }
    let from = here(&raw mut before);
    // SAFETY: a local, and the memory of a request under way.
    unsafe { copy::copy(m.memory, from.here()) }
}
