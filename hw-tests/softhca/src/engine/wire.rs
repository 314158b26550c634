// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delivery: what one request does to the queue pair it is meant for.
//!
//! Called by: sendq, with `sq.lock` of the sender held, from whatever process. Calls: recv, cq, copy, mr. Grade: hot.
//! Thread rule: everything of the peer happens under its `resp.lock`, which also keeps its queues from going away.
//! A payload of up to 256 bytes goes into the completion, and the receiver's own poll puts it into his memory; a longer one
//! is moved by one system call, or a copy within the process. RDMA and atomics work on the target's memory at once.

use super::{
    Ah, AhAttr, Errno, SendWr, clock,
    codes::{
        access, event,
        qp_state::{RTR, SQE},
        qp_type::{RC, UD},
        send_flags, wc_flags, wc_opcode, wc_status, wr_opcode,
    },
    copy::{self, Memory, Pieces},
    counters::{Count, count},
    cq::{self, Completion, GRH_BYTES},
    datagram,
    fabric::{Fabric, PutOff},
    hca::MAX_INLINE,
    mr,
    qp::{self, QpShared},
    recv::RecvQueue,
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

/// Where a datagram goes.
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
}

impl To {
    #[inline]
    pub(crate) fn new(ah: &Ah, wr: &SendWr) -> To {
        let (device, port) = ah.to.unwrap_or_default();
        To { address: *ah.attr(), device, port, qpn: wr.remote_qpn, qkey: wr.remote_qkey, pd: ah.pd }
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
        && peer.kind.get() == qp.kind.get()
        && fabric.is_active(qp.device.get(), qp.port.get())
        && fabric.is_active(peer.device.get(), peer.port.get());
    if !is_reached {
        drop(held);
        return lost(qp);
    }
    let mut ready_ns = 0;
    if fabric.has_faults || fabric.has_model {
        match super::faults::on_packet(fabric, qp, peer, m.len) {
            // A repeated packet is known by its number, and answered without being executed again.
            super::faults::Verdict::Pass(ready) => ready_ns = ready,
            super::faults::Verdict::Twice(ready) => {
                ready_ns = ready;
                count(fabric, peer, Count::DuplicateRequest);
            }
            super::faults::Verdict::Lost => return lost(qp),
            super::faults::Verdict::NotReady => return not_ready(fabric, qp, peer),
            super::faults::Verdict::Status(status) => return Outcome::done(status),
        }
    }
    // Packets count: one for each path MTU of payload, at least one.
    let mtu_bits = qp.mtu_bits.get();
    let packets = if m.len == 0 { 1 } else { ((m.len - 1) >> mtu_bits) + 1 };
    let psn = qp.sq.psn.get();
    let ahead = psn.wrapping_sub(peer.resp.psn.get()) & 0xff_ffff;
    if ahead != 0 {
        if qp.kind.get() == RC {
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
    let outcome = match m.opcode {
        wr_opcode::SEND | wr_opcode::SEND_WITH_IMM => receive(fabric, qp, peer, m, ready_ns),
        wr_opcode::RDMA_WRITE | wr_opcode::RDMA_WRITE_WITH_IMM => write(fabric, qp, peer, m, ready_ns),
        wr_opcode::RDMA_READ => read(fabric, qp, peer, m),
        _ => atomic(fabric, qp, peer, m),
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

/// Nobody there: reliable senders wait for an answer, others never know.
#[cold]
fn lost(qp: &QpShared) -> Outcome {
    if qp.kind.get() == RC { Outcome::Lost } else { Outcome::done(wc_status::SUCCESS) }
}

/// There is no request: reliable senders are told to come again (and count it when they wait, since they may try early).
#[cold]
fn not_ready(fabric: &Fabric, qp: &QpShared, peer: &QpShared) -> Outcome {
    if qp.kind.get() != RC {
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

/// Takes a request of `queue`; says that one is wanted if there is none.
#[inline]
pub(crate) fn take(fabric: &Fabric, peer: &QpShared, queue: &RecvQueue) -> Option<u32> {
    let held = queue.lock_taking(fabric);
    let mut wqe = queue.take(fabric);
    if wqe.is_none() && peer.kind.get() == RC {
        // Said before looking again: whoever posts in between sees it, or we see what he posted.
        peer.rq.wanted.swap(1);
        queue.wanted.swap(1);
        wqe = queue.take(fabric);
    }
    if held.is_some() && queue.limit.get() != 0 {
        check_limit(fabric, queue);
    }
    wqe
}

/// Tells the owner of a shared queue once fewer requests are left than he wants. The caller holds the takers' lock.
#[cold]
pub(crate) fn check_limit(fabric: &Fabric, queue: &RecvQueue) {
    let limit = queue.limit.get();
    if limit != 0 && queue.left() < limit && queue.limit.replace(limit, 0) {
        let record = super::channel::Record {
            about: super::channel::ABOUT_SRQ,
            id: queue.id.get(),
            event: event::SRQ_LIMIT_REACHED,
            cookie: queue.cookie.get(),
        };
        fabric.pipes.send(queue.context.get(), record);
    }
}

/// A send arrives.
#[inline]
fn receive(fabric: &Fabric, qp: &QpShared, peer: &QpShared, m: &Message, ready_ns: u64) -> Outcome {
    let queue = peer.recv_queue(fabric);
    let Some(wqe) = take(fabric, peer, queue) else { return not_ready(fabric, qp, peer) };
    land(fabric, peer, queue, m, &arrival(qp, m, wqe, ready_ns), 0, None)
}

/// What the receiver is told of a message from `qp` that request `wqe` took.
#[inline]
pub(crate) fn arrival(qp: &QpShared, m: &Message, wqe: u32, ready_ns: u64) -> Completion {
    let is_write = m.opcode == wr_opcode::RDMA_WRITE_WITH_IMM;
    let has_imm = is_write || m.opcode == wr_opcode::SEND_WITH_IMM;
    Completion {
        opcode: if is_write { wc_opcode::RECV_RDMA_WITH_IMM } else { wc_opcode::RECV },
        flags: if has_imm { wc_flags::WITH_IMM } else { 0 },
        imm: m.imm,
        byte_len: m.len,
        src_qp: qp.qpn.get(),
        wqe,
        is_recv: true,
        solicited: m.flags & send_flags::SOLICITED != 0,
        ready_ns,
        ..Completion::default()
    }
}

/// Puts what arrives where the request `arrival.wqe` says, and completes it. `lead` bytes are left free before it.
#[inline]
pub(crate) fn land(
    fabric: &Fabric,
    peer: &QpShared,
    queue: &RecvQueue,
    m: &Message,
    arrival: &Completion,
    lead: u32,
    grh: Option<&[u64; 5]>,
) -> Outcome {
    let is_small = m.len <= MAX_INLINE;
    if (!is_small || queue.shortest() < m.len + lead)
        && let Err(outcome) = look(fabric, peer, queue, m, arrival.wqe, lead, !is_small)
    {
        return outcome;
    }
    let Some(mut reserved) = peer.recv_cq(fabric).reserve(fabric) else { return Outcome::done(wc_status::SUCCESS) };
    if is_small {
        let place = reserved.payload(fabric, m.len);
        if m.memory.pid.is_none() {
            copy::gather(place, m.memory.pieces);
        } else {
            let mut piece = Pieces::new();
            piece.push(place as u64, u64::from(m.len));
            if copy::copy(Memory { pid: None, pieces: piece.as_slice() }, m.memory).is_err() {
                return Outcome::Lost; // the sender's process is gone, its request with it
            }
        }
    }
    if let Some(grh) = grh {
        reserved.set_grh(fabric, grh);
    }
    reserved.commit(fabric, peer, arrival);
    Outcome::done(wc_status::SUCCESS)
}

/// Checks a request that may not fit, and moves a payload that does not travel in the completion.
fn look(
    fabric: &Fabric,
    peer: &QpShared,
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
    let Some(pieces) = queue.pieces(fabric, wqe, peer.pd.get()) else { return unusable() };
    if !moves {
        return Ok(());
    }
    let body = pieces.window(u64::from(lead), u64::from(m.len));
    match fabric.other_pid(peer.owner.get()) {
        Ok(pid) => match copy::copy(Memory { pid, pieces: body.as_slice() }, m.memory) {
            Ok(()) => Ok(()),
            Err(Errno(libc::EFAULT)) => unusable(),
            Err(errno) => Err(cannot_copy(fabric, peer, errno)),
        },
        Err(errno) => Err(cannot_copy(fabric, peer, errno)),
    }
}

/// A receive ends in an error at the answering side, which stops.
#[cold]
fn refuse(fabric: &Fabric, peer: &QpShared, wqe: u32, status: u32) {
    count(fabric, peer, Count::ResponderError);
    if let Some(reserved) = peer.recv_cq(fabric).reserve(fabric) {
        reserved.commit(fabric, peer, &cq::failed_recv(status, wqe));
    }
    peer.fail_receives(fabric);
    qp::fail_later(fabric, peer);
}

/// An access that the answering side does not allow; it stops and tells its owner.
#[cold]
fn deny(fabric: &Fabric, peer: &QpShared, event: u32, status: u32) -> Outcome {
    if peer.kind.get() != RC {
        return Outcome::done(wc_status::SUCCESS); // unreliable: dropped
    }
    peer.raise(fabric, event);
    peer.fail_receives(fabric);
    qp::fail_later(fabric, peer);
    Outcome::done(status)
}

/// The key, its rights or the memory behind it do not allow an access.
#[cold]
fn no_access(fabric: &Fabric, peer: &QpShared) -> Outcome {
    count(fabric, peer, Count::ResponderAccess);
    deny(fabric, peer, event::QP_ACCESS_ERR, wc_status::REM_ACCESS_ERR)
}

/// The target's memory was not reached: it is not mapped, or see [`cannot_copy`].
#[cold]
fn unreached(fabric: &Fabric, peer: &QpShared, errno: Errno) -> Outcome {
    if errno == Errno(libc::EFAULT) { no_access(fabric, peer) } else { cannot_copy(fabric, peer, errno) }
}

/// The other process cannot be reached: dead, or not ours to touch.
#[cold]
fn cannot_copy(fabric: &Fabric, peer: &QpShared, errno: Errno) -> Outcome {
    if errno == Errno(libc::EPERM) {
        static ONCE: std::sync::Once = std::sync::Once::new();
        let token = peer.owner.get();
        let pid = super::process::pid_of(fabric.region(), token).unwrap_or(0);
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
    fabric.put_off(PutOff::Bury(peer.owner.get()));
    lost(peer)
}

/// The memory of `len` bytes at the target, if the key and the queue pair allow it.
#[inline]
fn target(fabric: &Fabric, peer: &QpShared, m: &Message, len: u64, need: u32) -> Option<u64> {
    if peer.access.get() & need == 0 {
        return None;
    }
    if len == 0 {
        return Some(0);
    }
    mr::find(fabric, m.rkey, peer.pd.get(), m.remote_addr, len, need)
}

fn write(fabric: &Fabric, qp: &QpShared, peer: &QpShared, m: &Message, ready_ns: u64) -> Outcome {
    let Some(addr) = target(fabric, peer, m, u64::from(m.len), access::REMOTE_WRITE) else {
        return no_access(fabric, peer);
    };
    let mut taken = None;
    if m.opcode == wr_opcode::RDMA_WRITE_WITH_IMM {
        let queue = peer.recv_queue(fabric);
        let Some(wqe) = take(fabric, peer, queue) else { return not_ready(fabric, qp, peer) };
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
            .other_pid(peer.owner.get())
            .and_then(|pid| copy::copy(Memory { pid, pieces: place.as_slice() }, m.memory));
        if let Err(errno) = moved {
            return unreached(fabric, peer, errno);
        }
    }
    if let Some(wqe) = taken
        && let Some(reserved) = peer.recv_cq(fabric).reserve(fabric)
    {
        reserved.commit(fabric, peer, &arrival(qp, m, wqe, ready_ns));
    }
    Outcome::done(wc_status::SUCCESS)
}

fn read(fabric: &Fabric, qp: &QpShared, peer: &QpShared, m: &Message) -> Outcome {
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
        .other_pid(peer.owner.get())
        .and_then(|pid| copy::copy(m.memory, Memory { pid, pieces: place.as_slice() }));
    match moved {
        Ok(()) => Outcome::done(wc_status::SUCCESS),
        Err(errno) => unreached(fabric, peer, errno),
    }
}

fn atomic(fabric: &Fabric, qp: &QpShared, peer: &QpShared, m: &Message) -> Outcome {
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
fn exchange(fabric: &Fabric, peer: &QpShared, m: &Message, addr: u64) -> super::Result<()> {
    let pid = fabric.other_pid(peer.owner.get())?;
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
        copy::copy(Memory { pid: None, pieces: into.as_slice() }, there)?;
        after = match m.opcode {
            wr_opcode::ATOMIC_FETCH_AND_ADD => before.wrapping_add(m.compare_add),
            _ if before == m.compare_add => m.swap,
            _ => before,
        };
        let from = here(&raw mut after);
        copy::copy(there, Memory { pid: None, pieces: from.as_slice() })?;
    }
    let from = here(&raw mut before);
    copy::copy(m.memory, Memory { pid: None, pieces: from.as_slice() })
}

/// When what leaves now arrives, by the model of the sender's adapter: its link carries one message at a time.
#[cold]
pub(crate) fn model(fabric: &Fabric, device: u32, port: u32, len: u32) -> u64 {
    let spec = &fabric.devices()[device as usize];
    if spec.latency_ns == 0 && spec.bandwidth_gbps <= 0.0 {
        return 0;
    }
    let busy = &fabric.region().header().port_busy[device as usize][port as usize - 1];
    let takes = if spec.bandwidth_gbps > 0.0 { (f64::from(len) * 8.0 / spec.bandwidth_gbps) as u64 } else { 0 };
    loop {
        let before = busy.get();
        let end = before.max(clock::now()) + takes;
        if busy.replace(before, end) {
            return end + spec.latency_ns;
        }
    }
}

const _: () = assert!(GRH_BYTES == 40);
