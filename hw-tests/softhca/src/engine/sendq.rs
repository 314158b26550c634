// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queue of send requests: posting, running, waiting, completing, flushing.
//!
//! Called by: the C side (`post_send`), whoever makes a waiting request possible (`kick`), the service (timers).
//! Grade: hot. A request that can be executed at once is executed by the caller and never stored; one that must wait is
//! stored in the ring, in shared memory, where the peer's process can execute it. Thread rule: `sq.lock` of the queue pair.
//! Stored requests are plain memory guarded by that lock (rule M2 of region).

use super::{
    Errno, Qp, Result, SendWr, Sge, alloc, clock,
    codes::{
        access,
        qp_state::{ERR, RTS, SQD, SQE},
        qp_type::{RC, UD},
        send_flags, wc_opcode, wc_status, wr_opcode,
    },
    copy::{self, Memory, Pieces},
    counters::{Count, count},
    cq::Completion,
    fabric::Fabric,
    hca::MAX_INLINE,
    lock::SharedLock,
    mr,
    qp::{self, QpShared},
    region::Shared,
    wire::{self, Message, Outcome, To},
    words::{W32, W64},
};

/// `SendQueue::wait`: what the oldest request waits for.
const NOTHING: u32 = 0;
const RECEIVER: u32 = 1;
const ANSWER: u32 = 2;
/// A retry count that never ends.
const FOR_EVER: u32 = 7;

#[repr(C, align(64))]
pub(crate) struct SendQueue {
    pub(crate) lock: SharedLock,
    /// Requests ever posted, executed, and freed (by the poll of a completion).
    posted: W32,
    done: W32,
    pub(crate) freed: W32,
    size: W32,
    stride: W32,
    max_sge: W32,
    pub(crate) psn: W32,
    requests: W64,
    pub(crate) wait: W32,
    retries_left: W32,
    /// When the oldest request is tried again.
    pub(crate) deadline: W64,
    _pad: W64,
}

// SAFETY: words only, repr(C), zero is an empty queue.
unsafe impl Shared for SendQueue {}

const _: () = assert!(size_of::<SendQueue>() == 64);

/// A request that waits. Its pieces or its payload follow.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Request {
    wr_id: u64,
    remote_addr: u64,
    compare_add: u64,
    swap: u64,
    opcode: u32,
    flags: u32,
    imm: u32,
    rkey: u32,
    len: u32,
    pieces: u32,
    /// The payload follows, instead of the pieces.
    carries: bool,
    to: To,
}

impl SendQueue {
    pub(crate) fn begin(&self, fabric: &Fabric, size: u32, max_sge: u32) -> Result<()> {
        let tail = (max_sge * size_of::<Sge>() as u32).max(MAX_INLINE);
        let stride = (size_of::<Request>() as u32 + tail).next_multiple_of(64);
        self.requests.set(alloc::allocate(fabric, u64::from(size) * u64::from(stride))?);
        self.size.set(size);
        self.stride.set(stride);
        self.max_sge.set(max_sge);
        self.clear();
        Ok(())
    }

    pub(crate) fn end(&self, fabric: &Fabric) {
        self.clear();
        alloc::release(fabric, self.requests.swap(0));
    }

    pub(crate) fn clear(&self) {
        for word in [&self.posted, &self.done, &self.freed, &self.wait, &self.psn] {
            word.set(0);
        }
        self.deadline.set(clock::NEVER);
    }

    fn request(&self, fabric: &Fabric, count: u32) -> *mut Request {
        let place = u64::from(count & (self.size.get() - 1));
        fabric.region().bytes(self.requests.get() + place * u64::from(self.stride.get())).cast()
    }
}

impl Qp {
    /// Posts one send work request.
    /// # Errors
    /// ENOMEM (queue full), EINVAL (state, opcode, pieces, inline size).
    #[inline]
    pub fn post_send(&self, wr: &SendWr) -> Result<()> {
        let fabric = &*self.hca.fabric;
        if fabric.has_faults {
            super::faults::on_post(fabric, self.shared)?;
        }
        let result = {
            let _held = self.shared.sq.lock.lock(fabric);
            post(fabric, self.shared, wr)
        };
        fabric.settle();
        result
    }
}

/// Whether this kind of queue pair can do that.
#[inline]
fn is_possible(kind: u32, opcode: u32) -> bool {
    match opcode {
        wr_opcode::SEND | wr_opcode::SEND_WITH_IMM => true,
        wr_opcode::RDMA_WRITE | wr_opcode::RDMA_WRITE_WITH_IMM => kind != UD,
        wr_opcode::RDMA_READ | wr_opcode::ATOMIC_CMP_AND_SWP | wr_opcode::ATOMIC_FETCH_AND_ADD => kind == RC,
        _ => false,
    }
}

/// Whether the request writes to local memory.
#[inline]
fn is_fetch(opcode: u32) -> bool {
    opcode >= wr_opcode::RDMA_READ
}

#[inline]
fn post(fabric: &Fabric, qp: &QpShared, wr: &SendWr) -> Result<()> {
    const EINVAL: Errno = Errno(libc::EINVAL);
    let sq = &qp.sq;
    let state = qp.state.get();
    let kind = qp.kind.get();
    let posted = sq.posted.get();
    if state < RTS || !is_possible(kind, wr.opcode) || wr.sge.len() > sq.max_sge.get() as usize {
        return Err(EINVAL);
    }
    if posted.wrapping_sub(sq.freed.seen()) >= sq.size.get() {
        return Err(Errno(libc::ENOMEM));
    }
    let mut len = 0_u64;
    for sge in wr.sge {
        len += u64::from(sge.len);
    }
    let is_inline = wr.flags & send_flags::INLINE != 0;
    if is_inline && (len > u64::from(MAX_INLINE) || is_fetch(wr.opcode)) {
        return Err(EINVAL);
    }
    let to = match wr.ah {
        Some(ah) if kind == UD => To::new(ah, wr),
        None if kind == UD => return Err(EINVAL),
        _ => To::default(),
    };
    if state != RTS || sq.done.get() != posted {
        store(fabric, qp, wr, &to, len as u32);
        sq.posted.set(posted.wrapping_add(1));
        if state == ERR || state == SQE {
            flush(fabric, qp);
        } else if state != SQD && clock::now() >= sq.deadline.get() {
            run(fabric, qp, true);
        }
        return Ok(());
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
        if len > u64::from(super::hca::MAX_MESSAGE) {
            return Outcome::done(wc_status::LOC_LEN_ERR);
        }
        wire::transmit(fabric, qp, &message)
    });
    sq.posted.set(posted.wrapping_add(1));
    if let Outcome::Done { status, ready_ns } = outcome {
        complete(fabric, qp, wr.wr_id, wr.opcode, wr.flags, len as u32, status, ready_ns);
    } else {
        store_at(fabric, qp, posted, wr, &to, len as u32);
        wait(fabric, qp, outcome, NOTHING, true);
    }
    Ok(())
}

/// The memory of a request, in the sender's space.
/// # Errors
/// The request's end, if a registration does not allow it.
#[inline]
fn translate(
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
            let addr = mr::find(fabric, sge.lkey, qp.pd.get(), sge.addr, len, need)
                .ok_or(Outcome::done(wc_status::LOC_PROT_ERR))?;
            pieces.push(addr, len);
        }
    }
    Ok(())
}

#[cold]
fn store(fabric: &Fabric, qp: &QpShared, wr: &SendWr, to: &To, len: u32) {
    store_at(fabric, qp, qp.sq.posted.get(), wr, to, len);
}

/// Keeps a request until it can be executed, by whomever; a small payload with it, so that this needs no system call.
#[cold]
fn store_at(fabric: &Fabric, qp: &QpShared, count: u32, wr: &SendWr, to: &To, len: u32) {
    let request = qp.sq.request(fabric, count);
    let mut pieces = Pieces::new();
    let carries = if wr.flags & send_flags::INLINE != 0 {
        for sge in wr.sge {
            pieces.push(sge.addr, u64::from(sge.len));
        }
        true
    } else {
        !is_fetch(wr.opcode) && len <= MAX_INLINE && translate(fabric, qp, wr.opcode, wr.sge, &mut pieces).is_ok()
    };
    let kept = Request {
        wr_id: wr.wr_id,
        remote_addr: wr.remote_addr,
        compare_add: wr.compare_add,
        swap: wr.swap,
        opcode: wr.opcode,
        flags: wr.flags,
        imm: wr.imm,
        rkey: wr.rkey,
        len,
        pieces: wr.sge.len() as u32,
        carries,
        to: *to,
    };
    // SAFETY: the place is free, ours by `sq.lock` (rule M2), and its stride has room for the pieces or the payload.
    unsafe {
        request.write(kept);
        let tail = request.add(1);
        if carries {
            copy::gather(tail.cast(), pieces.as_slice());
        } else {
            std::ptr::copy_nonoverlapping(wr.sge.as_ptr(), tail.cast::<Sge>(), wr.sge.len());
        }
    }
}

/// Executes a stored request, from whatever process.
#[cold]
fn execute(fabric: &Fabric, qp: &QpShared, request: *mut Request, kept: &Request) -> Outcome {
    // SAFETY: what follows the request is inside its stride.
    let tail = unsafe { request.add(1) };
    let mut pieces = Pieces::new();
    let mut pid = None;
    if kept.carries {
        pieces.push(tail as u64, u64::from(kept.len));
    } else {
        // SAFETY: `store_at` wrote that many pieces there; `sq.lock` is held.
        let list = unsafe { std::slice::from_raw_parts(tail.cast::<Sge>(), kept.pieces as usize) };
        if let Err(end) = translate(fabric, qp, kept.opcode, list, &mut pieces) {
            return end;
        }
        match fabric.other_pid(qp.owner.get()) {
            Ok(other) => pid = other,
            Err(_) => return Outcome::Lost, // the sender itself is dead; its burial ends this
        }
    }
    let message = Message {
        opcode: kept.opcode,
        flags: kept.flags,
        imm: kept.imm,
        len: kept.len,
        rkey: kept.rkey,
        remote_addr: kept.remote_addr,
        compare_add: kept.compare_add,
        swap: kept.swap,
        memory: Memory { pid, pieces: pieces.as_slice() },
        to: &kept.to,
    };
    wire::transmit(fabric, qp, &message)
}

/// Executes what waits, in order, as far as it goes. `due`: the oldest request's time has come, which counts as a retry.
/// The caller holds `sq.lock`.
#[cold]
pub(crate) fn run(fabric: &Fabric, qp: &QpShared, due: bool) {
    let sq = &qp.sq;
    let mut due = due;
    let mut waited = sq.wait.get();
    while sq.done.get() != sq.posted.get() {
        match qp.state.get() {
            RTS => {}
            ERR | SQE => return flush(fabric, qp),
            _ => return,
        }
        let request = sq.request(fabric, sq.done.get());
        // SAFETY: a request between `done` and `posted` was written, under the lock that we hold.
        let kept = unsafe { request.read() };
        match execute(fabric, qp, request, &kept) {
            Outcome::Done { status, ready_ns } => {
                complete(fabric, qp, kept.wr_id, kept.opcode, kept.flags, kept.len, status, ready_ns);
                waited = NOTHING;
                due = false;
            }
            outcome => {
                if !wait(fabric, qp, outcome, waited, due) {
                    continue; // it failed; the state says so
                }
                return;
            }
        }
    }
    sq.wait.set(NOTHING);
    sq.deadline.set(clock::NEVER);
}

/// The oldest request cannot be executed now: waits, or gives up when its retries are used up (`false`).
#[cold]
fn wait(fabric: &Fabric, qp: &QpShared, outcome: Outcome, waited: u32, due: bool) -> bool {
    let sq = &qp.sq;
    let (kind, limit, pause, status) = match outcome {
        Outcome::NotReady(ns) => (RECEIVER, qp.rnr_retry.get(), ns, wc_status::RNR_RETRY_EXC_ERR),
        _ => (ANSWER, qp.retry_cnt.get(), answer_time(qp.timeout.get()), wc_status::RETRY_EXC_ERR),
    };
    let begins = waited != kind;
    if !begins && !due {
        return true; // tried early, because something changed: the timer goes on
    }
    let left = if begins { limit } else { sq.retries_left.get() };
    // No answer is noticed after the timeout only; "not ready" at once.
    let spends = kind == RECEIVER || !begins;
    if kind == RECEIVER {
        count(fabric, qp, Count::RnrNakRetry);
        count(fabric, qp::place(fabric, qp.dest_qpn.get()), Count::OutOfBuffer);
    } else if spends {
        count(fabric, qp, Count::LocalAckTimeout);
    }
    if spends && left == 0 {
        // SAFETY: as in `run`.
        let kept = unsafe { sq.request(fabric, sq.done.get()).read() };
        complete(fabric, qp, kept.wr_id, kept.opcode, kept.flags, kept.len, status, 0);
        return false;
    }
    let endless = kind == RECEIVER && limit == FOR_EVER;
    sq.retries_left.set(if spends && !endless { left - 1 } else { left });
    sq.wait.set(kind);
    sq.deadline.set(if pause == clock::NEVER { clock::NEVER } else { clock::now() + pause });
    if qp.owner.get() == fabric.token() {
        fabric.service.watch(qp.index(), sq.deadline.get());
    }
    true
}

/// 4.096 us * 2^timeout, in nanoseconds; 0 means for ever.
fn answer_time(timeout: u32) -> u64 {
    if timeout == 0 { clock::NEVER } else { 4096 << timeout.min(31) }
}

/// A timer of this queue pair may have run out; when to look again, if at all.
pub(crate) fn retry(fabric: &Fabric, index: u32) -> Option<u64> {
    let qp = qp::place(fabric, index);
    let _held = qp.sq.lock.lock(fabric);
    if qp.qpn.get() == 0 || qp.sq.wait.get() == NOTHING {
        return None;
    }
    if qp.sq.deadline.get() <= clock::now() {
        run(fabric, qp, true);
    }
    (qp.sq.wait.get() != NOTHING).then(|| qp.sq.deadline.get())
}

/// Tries again what waits, because something has changed. No lock is held.
pub(crate) fn kick(fabric: &Fabric, index: u32) {
    let qp = qp::place(fabric, index);
    let _held = qp.sq.lock.lock(fabric);
    if qp.qpn.get() != 0 && qp.sq.wait.get() != NOTHING {
        run(fabric, qp, false);
    }
}

fn completion_opcode(opcode: u32) -> u32 {
    match opcode {
        wr_opcode::RDMA_WRITE | wr_opcode::RDMA_WRITE_WITH_IMM => wc_opcode::RDMA_WRITE,
        wr_opcode::RDMA_READ => wc_opcode::RDMA_READ,
        wr_opcode::ATOMIC_CMP_AND_SWP => wc_opcode::COMP_SWAP,
        wr_opcode::ATOMIC_FETCH_AND_ADD => wc_opcode::FETCH_ADD,
        _ => wc_opcode::SEND,
    }
}

/// The oldest request is over: counts it and, if it is asked for or has failed, says so. After a failure the queue stops.
#[expect(clippy::too_many_arguments, reason = "the fields of a request, stored or not")]
#[inline]
fn complete(fabric: &Fabric, qp: &QpShared, wr_id: u64, opcode: u32, flags: u32, len: u32, status: u32, ready_ns: u64) {
    let sq = &qp.sq;
    let done = sq.done.get().wrapping_add(1);
    sq.done.set(done);
    let said = flags & send_flags::SIGNALED != 0 || qp.signal_all.get() != 0 || status != wc_status::SUCCESS;
    if said && let Some(reserved) = qp.send_cq(fabric).reserve(fabric) {
        let completion = Completion {
            wr_id,
            status,
            opcode: completion_opcode(opcode),
            byte_len: if opcode > wr_opcode::RDMA_READ { 8 } else { len },
            wqe: done,
            ready_ns,
            ..Completion::default()
        };
        reserved.commit(fabric, qp, &completion);
    }
    if status != wc_status::SUCCESS && status != wc_status::WR_FLUSH_ERR {
        stop(fabric, qp, status);
    }
}

/// A send has failed: reliable queue pairs enter the error state, others only stop sending.
#[cold]
fn stop(fabric: &Fabric, qp: &QpShared, status: u32) {
    count(fabric, qp, Count::RequesterError);
    if status == wc_status::REM_ACCESS_ERR {
        count(fabric, qp, Count::RequesterAccess);
    }
    if qp.kind.get() == RC {
        fail(fabric, qp);
    } else {
        let answers = qp.resp.lock.lock(fabric);
        if qp.state.get() == RTS {
            qp.state.publish(SQE);
        }
        drop(answers);
        flush(fabric, qp);
    }
}

/// Enters the error state; the caller holds `sq.lock`.
#[cold]
pub(crate) fn fail(fabric: &Fabric, qp: &QpShared) {
    let answers = qp.resp.lock.lock(fabric);
    qp.fail_receives(fabric);
    drop(answers);
    flush(fabric, qp);
}

/// Ends all stored requests as flushed.
#[cold]
fn flush(fabric: &Fabric, qp: &QpShared) {
    let sq = &qp.sq;
    sq.wait.set(NOTHING);
    sq.deadline.set(clock::NEVER);
    while sq.done.get() != sq.posted.get() {
        // SAFETY: as in `run`.
        let kept = unsafe { sq.request(fabric, sq.done.get()).read() };
        complete(fabric, qp, kept.wr_id, kept.opcode, kept.flags, kept.len, wc_status::WR_FLUSH_ERR, 0);
    }
}
