// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests that wait for a receiver, for an answer, or behind another request that waits. They are stored in the
//! queue, in shared memory, so the peer's process can execute them, too. Called by: post, modify, deferred work of
//! threads that make a waiting request possible, the service thread (timers). Grade: pending. Thread rule: `sq.lock` of
//! the queue pair guards stored requests (rule M2 of region).

use crate::engine::codes::qp_state::{ERR, RTS, SQD, SQE};
use crate::engine::codes::{event, send_flags, wc_status};
use crate::engine::memory::layout::MAX_CARRIED;
use crate::engine::send::execution::{complete, flush, is_fetch, perform, translate};
use crate::engine::send::queue::{ANSWER, NOTHING, RECEIVER, Request, TURN};
use crate::engine::wire::To;
use crate::engine::{Count, Fabric, Memory, Message, Outcome, Pieces, QpShared, SendWr, Sge, clock, copy, place};

/// For a send that names its address handle by index: time from its post until the adapter looks the handle up.
const TURN_NS: u64 = 50_000;
/// Longest time between two looks of the owner of a waiting queue at its deadline.
const LOOK_NS: u64 = 100_000_000;
const FOR_EVER: u32 = 7;

/// Stores a request, with a small payload to save a system call, until this process or the peer's can execute it.
#[cold]
pub(super) fn store(fabric: &Fabric, qp: &QpShared, count: u32, wr: &SendWr, to: &To, len: u32) {
    let request = qp.sq.request(fabric, count);
    let is_inline = wr.flags & send_flags::INLINE != 0;
    let is_small = !is_fetch(wr.opcode) && len <= MAX_CARRIED;
    let mut pieces = Pieces::new();
    if is_inline {
        pieces.extend(wr.sge);
    }
    let is_carried = is_inline || (is_small && translate(fabric, qp, wr.opcode, wr.sge, &mut pieces));
    // SAFETY: the place is free, ours by `sq.lock` (rule M2), and its stride has room for the pieces or the payload.
    unsafe {
        let tail = request.add(1);
        // Memory that is not mapped fails the request when its turn comes.
        let carries = is_carried && copy::gather(tail.cast(), pieces.as_slice()).is_ok();
        if !carries {
            std::ptr::copy_nonoverlapping(wr.sge.as_ptr(), tail.cast::<Sge>(), wr.sge.len());
        }
        let pieces = wr.sge.len() as u32;
        request.write(Request { wr_id: wr.wr_id, what: wr.operation(), len, pieces, carries, to: *to });
    }
}

#[cold]
fn execute(fabric: &Fabric, qp: &QpShared, request: *mut Request, kept: &Request) -> Outcome {
    // SAFETY: what follows the request is inside its stride.
    let tail = unsafe { request.add(1) };
    let mut pieces = Pieces::new();
    let mut pid = None;
    if kept.carries {
        pieces.push(tail as u64, u64::from(kept.len));
    } else {
        // SAFETY: `store` wrote that many pieces there; `sq.lock` is held.
        let list = unsafe { std::slice::from_raw_parts(tail.cast::<Sge>(), kept.pieces as usize) };
        if !translate(fabric, qp, kept.what.opcode, list, &mut pieces) {
            return Outcome::done(wc_status::LOC_PROT_ERR);
        }
        match fabric.other_pid(qp.owner.get()) {
            Ok(other) => pid = other,
            Err(_) => return Outcome::Lost, // the sender itself is dead; its burial ends this
        }
    }
    if kept.len > qp.sq.max_message.get() {
        return Outcome::done(wc_status::LOC_LEN_ERR);
    }
    let memory = Memory { pid, pieces: pieces.as_slice() };
    perform(fabric, qp, &Message { what: kept.what, len: kept.len, memory, to: &kept.to })
}

/// Executes the requests that wait, in order, until one has to wait again. `due`: the oldest request's time has come,
/// which counts as a retry. The caller holds `sq.lock`.
#[cold]
pub(crate) fn run(fabric: &Fabric, qp: &QpShared, due: bool) {
    let sq = &qp.sq;
    let mut due = due;
    let mut waited = sq.wait.get();
    if due && waited == ANSWER {
        qp.count(fabric, Count::LocalAckTimeout);
    }
    while sq.done.get() != sq.posted.get() {
        match qp.state.get() {
            RTS => {}
            SQD if waited != NOTHING => {} // it was in progress before
            ERR | SQE => return flush(fabric, qp),
            _ => break,
        }
        let request = sq.request(fabric, sq.done.get());
        // SAFETY: a request between `done` and `posted` was written, under the lock that we hold.
        let kept = unsafe { request.read() };
        match execute(fabric, qp, request, &kept) {
            Outcome::Done { status, ready_ns } => {
                complete(fabric, qp, kept.wr_id, kept.what.opcode, kept.what.flags, kept.len, status, ready_ns);
                waited = NOTHING;
                due = false;
            }
            outcome => {
                if !wait(fabric, qp, outcome, waited, due) {
                    continue; // the request failed, and has changed the state
                }
                return;
            }
        }
    }
    sq.wait.set(NOTHING);
    sq.deadline.set(clock::NEVER);
    if qp.state.get() == SQD && qp.tells_drained.get() != 0 {
        qp.tells_drained.set(0);
        qp.raise(fabric, event::SQ_DRAINED);
    }
}

/// Lets a poll of this process, or its service thread, execute the oldest request (just posted) after a while.
#[cold]
pub(super) fn take_turns(fabric: &Fabric, qp: &QpShared) {
    qp.sq.wait.set(TURN);
    qp.sq.deadline.set(clock::after(TURN_NS));
    fabric.timers.retry_at(qp.index(), qp.sq.deadline.get());
}

/// Called if the oldest request cannot be executed now: waits, or gives up if its retries are used up (`false`).
#[cold]
pub(super) fn wait(fabric: &Fabric, qp: &QpShared, outcome: Outcome, waited: u32, due: bool) -> bool {
    let sq = &qp.sq;
    // 4.096 us * 2^timeout; 0 means for ever.
    let answer_ns = if qp.timeout.get() == 0 { clock::NEVER } else { 4096 << qp.timeout.get().min(31) };
    let (kind, limit, pause, status) = match outcome {
        Outcome::NotReady(ns) => (RECEIVER, qp.rnr_retry.get(), ns, wc_status::RNR_RETRY_EXC_ERR),
        _ => (ANSWER, qp.retry_cnt.get(), answer_ns, wc_status::RETRY_EXC_ERR),
    };
    let begins = waited != kind;
    if !begins && !due {
        return true; // tried early, because something changed: the timer goes on
    }
    let left = if begins { limit } else { sq.retries_left.get() };
    // A missing answer is known only after the timeout, "not ready" at once.
    let spends = kind == RECEIVER || !begins;
    if kind == RECEIVER {
        qp.count(fabric, Count::RnrNakRetry);
        place(fabric, qp.dest_qpn.get()).count(fabric, Count::OutOfBuffer);
    }
    if spends && left == 0 {
        // SAFETY: the request at `done` was written, under the lock that the caller holds.
        let kept = unsafe { sq.request(fabric, sq.done.get()).read() };
        complete(fabric, qp, kept.wr_id, kept.what.opcode, kept.what.flags, kept.len, status, 0);
        return false;
    }
    let ways = qp.behaviour(fabric);
    let endless = limit == FOR_EVER && if kind == RECEIVER { ways.rnr7_endless } else { ways.retry7_endless };
    sq.retries_left.set(if spends && !endless { left - 1 } else { left });
    sq.wait.set(kind);
    sq.deadline.set(clock::after(pause));
    if qp.owner.get() == fabric.token() {
        fabric.timers.retry_at(qp.index(), look_again(sq.deadline.get()));
    }
    true
}

/// Runs the queue if its timer has expired, or before that (`early`) because something has changed. The caller holds no
/// lock. Returns when to look again, if at all.
pub(crate) fn retry(fabric: &Fabric, index: u32, early: bool) -> Option<u64> {
    let qp = place(fabric, index);
    let _held = qp.lock_sends(fabric);
    if qp.qpn.get() == 0 || qp.sq.wait.get() == NOTHING {
        return None;
    }
    // A process that has stopped the queue pair may have died before it flushed.
    if early || qp.state.get() == ERR || qp.sq.deadline.get() <= clock::now() {
        run(fabric, qp, !early);
    }
    (qp.sq.wait.get() != NOTHING).then(|| look_again(qp.sq.deadline.get()))
}

/// Returns when the owner's timer looks again: at the deadline, or soon if that is far, since another process may have
/// executed the oldest request and set a deadline for the next one.
fn look_again(deadline: u64) -> u64 {
    deadline.min(clock::after(LOOK_NS))
}
