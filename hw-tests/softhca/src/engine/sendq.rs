// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queue of send requests: posting, completing, stopping. Those that must wait are `waiting`'s.
//!
//! Called by: the C side (`post_send`), qp (`fail`). Grade: hot. A request that can be executed at once is executed by
//! the caller and never stored. Thread rule: `sq.lock` of the queue pair.

mod refusal;
mod waiting;

use super::{
    Errno, Qp, QpCap, Result, SendWr, Sge, alloc, clock,
    codes::{
        access, event,
        qp_state::{ERR, RTS, SQD, SQE},
        qp_type::{RC, UC, UD, XRC_RECV, XRC_SEND, is_reliable},
        send_flags, wc_opcode, wc_status, wr_opcode,
    },
    copy::{Memory, Pieces},
    counters::{Count, count},
    cq::Completion,
    fabric::Fabric,
    hca::MAX_CARRIED,
    lock::SharedLock,
    mr,
    qp::QpShared,
    region::Shared,
    wire::{self, Message, Outcome, To},
    words::{W32, W64},
};

pub(crate) use waiting::{kick, retry, run};

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
    /// Most bytes of inline data, and of any message.
    max_inline: W32,
    max_message: W32,
}

// SAFETY: words only, repr(C), zero is an empty queue.
unsafe impl Shared for SendQueue {}

const _: () = assert!(size_of::<SendQueue>() == 64);

impl SendQueue {
    /// Gives it room for requests of the sizes granted.
    pub(crate) fn begin(&self, fabric: &Fabric, cap: &QpCap, max_message: u32) -> Result<()> {
        let (size, max_sge) = (cap.max_send_wr, cap.max_send_sge);
        let tail = (max_sge * size_of::<Sge>() as u32).max(MAX_CARRIED).max(cap.max_inline_data);
        let stride = (waiting::REQUEST_BYTES + tail).next_multiple_of(64);
        self.requests.set(alloc::allocate(fabric, u64::from(size) * u64::from(stride))?);
        self.size.set(size);
        self.stride.set(stride);
        self.max_sge.set(max_sge);
        self.max_inline.set(cap.max_inline_data);
        self.max_message.set(max_message);
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
}

impl Qp {
    /// Posts one send work request.
    /// # Errors
    /// ENOMEM (queue full), EINVAL (state, opcode, pieces, inline size), or what the adapter says instead (`refusal`).
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
fn is_fetch(opcode: u32) -> bool {
    (wr_opcode::RDMA_READ..=wr_opcode::ATOMIC_FETCH_AND_ADD).contains(&opcode)
}

#[inline]
fn post(fabric: &Fabric, qp: &QpShared, wr: &SendWr) -> Result<()> {
    let sq = &qp.sq;
    let state = qp.state.get();
    let kind = qp.kind.get();
    let posted = sq.posted.get();
    let mut answer = Ok(());
    let is_wrong = state < RTS || !is_possible(kind, wr.opcode) || wr.sge.len() > sq.max_sge.get() as usize;
    if is_wrong || refusal::may_lack_atomics(wr.opcode) {
        answer = refusal::judge(fabric, qp, wr, state)?;
    }
    if posted.wrapping_sub(sq.freed.seen()) >= sq.size.get() {
        return Err(Errno(libc::ENOMEM));
    }
    let mut len = 0_u64;
    for sge in wr.sge {
        len += u64::from(sge.len);
    }
    let is_inline = wr.flags & send_flags::INLINE != 0;
    if is_inline && (len > u64::from(sq.max_inline.get()) || is_fetch(wr.opcode)) {
        return Err(refusal::of_inline(fabric, qp, wr));
    }
    let to = match wr.ah {
        Some(ah) if kind == UD => To::new(ah, wr),
        None if kind == UD => return Err(Errno(libc::EINVAL)),
        _ if kind == XRC_SEND => To { srqn: wr.remote_srqn, ..To::default() },
        _ => To::default(),
    };
    if state != RTS || sq.done.get() != posted || to.handle != 0 {
        waiting::store(fabric, qp, posted, wr, &to, len as u32);
        sq.posted.set(posted.wrapping_add(1));
        if state == ERR || state == SQE {
            waiting::flush(fabric, qp);
        } else if state == RTS && sq.done.get() == posted {
            waiting::take_turns(fabric, qp);
        } else if state != SQD && clock::now() >= sq.deadline.get() {
            run(fabric, qp, true);
        }
        return answer;
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
        if len > u64::from(sq.max_message.get()) {
            return Outcome::done(wc_status::LOC_LEN_ERR);
        }
        perform(fabric, qp, &message)
    });
    sq.posted.set(posted.wrapping_add(1));
    if let Outcome::Done { status, ready_ns } = outcome {
        complete(fabric, qp, wr.wr_id, wr.opcode, wr.flags, len as u32, status, ready_ns);
    } else {
        waiting::store(fabric, qp, posted, wr, &to, len as u32);
        waiting::begin(fabric, qp, outcome);
    }
    Ok(())
}

/// Executes a request: on the wire, or here if it is about this side's own memory windows.
#[inline]
fn perform(fabric: &Fabric, qp: &QpShared, m: &Message) -> Outcome {
    if m.opcode == wr_opcode::LOCAL_INV || m.opcode == wr_opcode::BIND_MW {
        return manage_window(fabric, qp, m);
    }
    wire::transmit(fabric, qp, m)
}

/// The fields of such a request are those that `SendWr` says.
#[cold]
fn manage_window(fabric: &Fabric, qp: &QpShared, m: &Message) -> Outcome {
    if m.opcode == wr_opcode::LOCAL_INV {
        let is_done = mr::invalidate(fabric, m.imm, qp.pd.get(), qp.qpn.get());
        return Outcome::done(if is_done { wc_status::SUCCESS } else { wc_status::MW_BIND_ERR });
    }
    let binding = mr::Binding {
        window: m.imm,
        key: m.rkey,
        region: m.swap as u32,
        addr: m.remote_addr,
        len: m.compare_add,
        access: (m.swap >> 32) as u32,
    };
    Outcome::done(mr::bind(fabric, qp, &binding))
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

fn completion_opcode(opcode: u32) -> u32 {
    match opcode {
        wr_opcode::RDMA_WRITE | wr_opcode::RDMA_WRITE_WITH_IMM => wc_opcode::RDMA_WRITE,
        wr_opcode::RDMA_READ => wc_opcode::RDMA_READ,
        wr_opcode::ATOMIC_CMP_AND_SWP => wc_opcode::COMP_SWAP,
        wr_opcode::ATOMIC_FETCH_AND_ADD => wc_opcode::FETCH_ADD,
        wr_opcode::LOCAL_INV => wc_opcode::LOCAL_INV,
        wr_opcode::BIND_MW => wc_opcode::BIND_MW,
        _ => wc_opcode::SEND,
    }
}

/// The oldest request is over: counts it and, if it is asked for or has failed, says so. After a failure the queue
/// stops.
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
            byte_len: if is_fetch(opcode) && opcode != wr_opcode::RDMA_READ { 8 } else { len },
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
    if status == wc_status::RETRY_EXC_ERR && qp.behaviour(fabric).qp_fatal_on_retry_exc {
        qp.raise(fabric, event::QP_FATAL);
    }
    if status == wc_status::REM_ACCESS_ERR {
        count(fabric, qp, Count::RequesterAccess);
    }
    if is_reliable(qp.kind.get()) {
        fail(fabric, qp);
    } else {
        let answers = qp.resp.lock.lock(fabric);
        if qp.state.get() == RTS {
            qp.state.publish(SQE);
        }
        drop(answers);
        waiting::flush(fabric, qp);
    }
}

/// Enters the error state; the caller holds `sq.lock`.
#[cold]
pub(crate) fn fail(fabric: &Fabric, qp: &QpShared) {
    let answers = qp.resp.lock.lock(fabric);
    qp.fail_receives(fabric);
    drop(answers);
    waiting::flush(fabric, qp);
}
