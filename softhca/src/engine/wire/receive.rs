// SPDX-License-Identifier: MIT OR Apache-2.0
//! A send arrives: it takes a receive request, its payload goes to that request's memory, and it completes. Called by:
//! transmit, datagram, rdma (write with immediate), under the receiver's `resp.lock`. Grade: hot. Thread rule: as its
//! callers. A short payload goes into the completion or the receiver's inbox, and the receiver's own poll puts it into
//! its memory; one system call, or a copy within the process, moves a longer one.

use crate::engine::codes::{is_reliable, send_flags, wc_flags, wc_opcode, wc_status, wr_opcode};
use crate::engine::cq::ring::IN_ENTRY;
use crate::engine::memory::layout::MAX_CARRIED;
use crate::engine::mr::window;
use crate::engine::qp::inbox::{MAX_STAGED, Stretch};
use crate::engine::wire::responder::{Peer, cannot_copy, no_access, not_ready, refuse};
use crate::engine::{Completion, Errno, Fabric, Memory, Message, Outcome, Pieces, QpShared, RecvQueue, copy};

/// Takes a request of `queue`; if there is none, marks that one is wanted.
#[inline]
pub(crate) fn take(fabric: &Fabric, peer: &Peer, queue: &RecvQueue) -> Option<u32> {
    let held = queue.lock_taking(fabric);
    let mut wqe = queue.take(fabric, peer);
    if wqe.is_none() && is_reliable(peer.kind.get()) {
        // Set before looking again: a thread that posts in between sees it, or we see its request.
        peer.rq.wanted.swap(1);
        queue.wanted.swap(1);
        wqe = queue.take(fabric, peer);
    }
    if held.is_some() && queue.limit.get() != 0 {
        queue.check_limit(fabric);
    }
    wqe
}

/// Receives a send; a send with invalidation frees a memory window of the receiver before it completes.
#[inline]
pub(crate) fn receive(fabric: &Fabric, qp: &QpShared, peer: &Peer, m: &Message, ready_ns: u64) -> Outcome {
    let invalidates = m.what.opcode == wr_opcode::SEND_WITH_INV;
    if invalidates && window::invalidable(fabric, m.what.imm, peer.domain(), peer.qpn.get()).is_none() {
        return no_access(fabric, peer);
    }
    let queue = peer.queue(fabric);
    let Some(wqe) = take(fabric, peer, queue) else { return not_ready(fabric, qp, peer) };
    if invalidates {
        window::invalidate(fabric, m.what.imm, peer.domain(), peer.qpn.get());
    }
    land(fabric, peer, queue, m, &arrival(qp, peer, m, wqe, ready_ns), 0, None)
}

/// Makes the receiver's completion of a message from `qp` that request `wqe` took.
#[inline]
pub(crate) fn arrival(qp: &QpShared, peer: &Peer, m: &Message, wqe: u32, ready_ns: u64) -> Completion {
    let is_write = m.what.opcode == wr_opcode::RDMA_WRITE_WITH_IMM;
    let has_imm = is_write || m.what.opcode == wr_opcode::SEND_WITH_IMM;
    let inv = if m.what.opcode == wr_opcode::SEND_WITH_INV { wc_flags::WITH_INV } else { 0 };
    Completion {
        wr_id: peer.xrc_queue(),
        opcode: if is_write { wc_opcode::RECV_RDMA_WITH_IMM } else { wc_opcode::RECV },
        flags: if has_imm { wc_flags::WITH_IMM } else { inv },
        imm: m.what.imm,
        byte_len: m.len,
        src_qp: qp.qpn.get(),
        wqe,
        is_recv: true,
        solicited: m.what.flags & send_flags::SOLICITED != 0,
        ready_ns,
        ..Completion::default()
    }
}

/// Puts a message into the memory of request `arrival.wqe`, after `lead` free bytes, and completes the request.
#[inline]
pub(crate) fn land(
    fabric: &Fabric,
    peer: &Peer,
    queue: &RecvQueue,
    m: &Message,
    arrival: &Completion,
    lead: u32,
    grh: Option<&[u64; 5]>,
) -> Outcome {
    let is_small = m.len <= MAX_CARRIED;
    let stretch = if lead == 0 { staging(fabric, peer, m) } else { None };
    let moves = !is_small && stretch.is_none();
    if (moves || queue.shortest() < m.len + lead)
        && let Err(outcome) = look(fabric, peer, queue, m, arrival.wqe, lead, moves)
    {
        return outcome;
    }
    let Some(mut reserved) = peer.cq(fabric).reserve(fabric) else { return Outcome::done(wc_status::SUCCESS) };
    if let Some(stretch) = stretch {
        // SAFETY: a stretch of this length, which is ours; memory of a request under way, of this process (`staging`).
        if unsafe { copy::gather(peer.inbox.at(fabric, stretch), m.memory.pieces) }.is_err() {
            drop(reserved);
            return unread(fabric, peer, queue);
        }
        peer.inbox.fill(stretch);
        reserved.staged(fabric, stretch);
    } else if is_small {
        let place = reserved.payload(fabric, m.len);
        let copied = if m.memory.pid.is_none() {
            // SAFETY: room of this length in an entry that is ours; the memory of a request under way.
            unsafe { copy::gather(place, m.memory.pieces) }
        } else {
            let piece = Pieces::one(place as u64, u64::from(m.len));
            // SAFETY: room of this length in an entry that is ours; the memory is another process's.
            unsafe { copy::copy(piece.here(), m.memory) }
        };
        if let Err(errno) = copied {
            drop(reserved);
            return match errno {
                Errno(libc::EFAULT) => unread(fabric, peer, queue),
                errno => undelivered(fabric, peer, queue, errno),
            };
        }
    }
    if let Some(grh) = grh {
        reserved.set_grh(fabric, grh);
    }
    reserved.commit(fabric, peer, arrival);
    Outcome::done(wc_status::SUCCESS)
}

/// Returns the outcome of a send whose payload cannot be copied because its process is gone: the request stays posted.
#[cold]
fn undelivered(fabric: &Fabric, peer: &Peer, queue: &RecvQueue, errno: Errno) -> Outcome {
    peer.put_back(fabric, queue);
    cannot_copy(fabric, peer, errno)
}

/// Returns the outcome of a send whose memory is not mapped any more. The receive stays posted.
#[cold]
fn unread(fabric: &Fabric, peer: &Peer, queue: &RecvQueue) -> Outcome {
    peer.put_back(fabric, queue);
    Outcome::done(wc_status::LOC_PROT_ERR)
}

/// Finds room in the inbox for a message of this process' memory to another process, too long for a completion.
#[inline]
fn staging(fabric: &Fabric, peer: &Peer, m: &Message) -> Option<Stretch> {
    let fits = m.len > IN_ENTRY && m.len <= MAX_STAGED;
    let goes = fits && m.memory.pid.is_none() && peer.xrc.is_none() && peer.process() != fabric.token();
    if goes { peer.inbox.place(m.len) } else { None }
}

/// Checks a request that may not fit, and moves a payload that does not travel in the completion.
fn look(
    fabric: &Fabric,
    peer: &Peer,
    queue: &RecvQueue,
    m: &Message,
    wqe: u32,
    lead: u32,
    moves: bool,
) -> std::result::Result<(), Outcome> {
    if queue.room(fabric, wqe) < m.len.saturating_add(lead) {
        refuse(fabric, peer, wqe, wc_status::LOC_LEN_ERR);
        return Err(Outcome::done(wc_status::REM_INV_REQ_ERR));
    }
    let unusable = || {
        refuse(fabric, peer, wqe, wc_status::LOC_PROT_ERR);
        Err(Outcome::done(wc_status::REM_OP_ERR))
    };
    let Some(pieces) = queue.pieces(fabric, wqe, peer.domain()) else { return unusable() };
    if !moves {
        return Ok(());
    }
    let body = copy::window(pieces.as_slice(), u64::from(lead), u64::from(m.len));
    let pid = match fabric.other_pid(peer.process()) {
        Ok(pid) => pid,
        Err(errno) => return Err(undelivered(fabric, peer, queue, errno)),
    };
    let to = Memory { pid, pieces: body.as_slice() };
    // SAFETY: the memory of a request under way, and of a posted receive.
    match unsafe { copy::copy(to, m.memory) } {
        Ok(()) => Ok(()),
        Err(Errno(libc::EFAULT)) if copy::is_gone(m.memory, to) => Err(unread(fabric, peer, queue)),
        Err(Errno(libc::EFAULT)) => unusable(),
        Err(errno) => Err(undelivered(fabric, peer, queue, errno)),
    }
}
