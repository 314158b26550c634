// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completion queues: a ring that any process fills and its owner empties.
//!
//! Called by: wire and sendq (`reserve`, `commit`), the C side (`poll`, `arm`). Grade: hot; in a steady exchange one cache
//! line per completion changes hands: the entry, in which up to 24 bytes of payload travel. Longer ones (to 256 bytes) lie
//! beside it. Thread rule: fillers hold `lock`, the one who polls `poll_lock`; an entry belongs to the filler until its
//! number is published in `seq`, then to the one who polls until he moves `head`. Never hold `lock` and take another.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU32, Ordering},
};

use super::{
    CQ_TIMESTAMP_RAW, CQ_TIMESTAMP_WALL, Channel, Errno, Result, Wc, alloc,
    channel::{ABOUT_CQ, ChannelState, Record},
    clock,
    codes::{event, qp_type, wc_flags, wc_opcode, wc_status},
    copy,
    fabric::{Fabric, PutOff},
    hca::{Hca, MAX_INLINE},
    lock::{Held, SharedLock},
    qp::{self, QpShared},
    region::Shared,
    words::{W32, W64},
};

/// Payload that fits in the entry itself.
const IN_ENTRY: u32 = 24;
/// `Cqe::word`: the entry is a receive.
const IS_RECV: u32 = 1 << 30;
/// `Cqe::word`: the payload travels with the entry, and the one who polls puts it into the receive's memory.
const CARRIES: u32 = 1 << 31;
/// Bytes of a GRH before a datagram.
pub(crate) const GRH_BYTES: u32 = 40;

#[repr(C, align(64))]
struct Cqe {
    /// Number of the completion plus one, once it is complete.
    seq: W32,
    /// Queue pair number, and its epoch in the top 8 bits.
    qpn: W32,
    wr_id: W64,
    /// Status, opcode, `wc_flags` (a byte each), and the flags above.
    word: W32,
    byte_len: W32,
    imm: W32,
    /// Source queue pair, service level in the top 8 bits.
    src: W32,
    /// Sends: the count of requests that are done with it. Receives: what `recv::free` takes.
    wqe: W32,
    /// Source LID, pkey index, path bits.
    path: W32,
    data: [W64; 3],
}

/// What few completions need, apart from the entries.
#[repr(C, align(64))]
struct Extra {
    /// `CLOCK_MONOTONIC` nanoseconds when it completed.
    at_ns: W64,
    /// Not to be seen before this time (the model).
    ready_ns: W64,
    grh: [W64; 5],
}

const PER_ENTRY: u64 = 64 + 64 + MAX_INLINE as u64;

#[repr(C, align(64))]
struct Filling {
    lock: SharedLock,
    tail: W32,
    /// `head` as last read: fillers look again only when the ring seems full.
    head_seen: W32,
    /// 0, 1: next completion, 2: next solicited one gives an event.
    armed: W32,
    failed: W32,
}

#[repr(C, align(64))]
struct Emptying {
    poll_lock: SharedLock,
    head: W32,
}

/// A completion queue as it lies in the region.
#[repr(C, align(64))]
pub(crate) struct CqShared {
    id: W32,
    /// Entries minus one; entries are a power of two.
    mask: W32,
    flags: W32,
    device: W32,
    /// Pipe of its channel, 0 for none; and of its context.
    channel: W32,
    context: W32,
    pub(crate) owner: W32,
    _pad: W32,
    cookie: W64,
    entries: W64,
    filling: Filling,
    emptying: Emptying,
}

// SAFETY: words and such structures only, repr(C), zero is valid.
unsafe impl Shared for Cqe {}
// SAFETY: as above.
unsafe impl Shared for Extra {}
// SAFETY: as above.
unsafe impl Shared for CqShared {}

/// What a completion says, apart from its payload.
#[derive(Clone, Copy, Default)]
pub(crate) struct Completion {
    pub(crate) wr_id: u64,
    pub(crate) status: u32,
    pub(crate) opcode: u32,
    pub(crate) flags: u32,
    pub(crate) byte_len: u32,
    pub(crate) imm: u32,
    pub(crate) src_qp: u32,
    pub(crate) sl: u8,
    pub(crate) slid: u16,
    pub(crate) pkey_index: u8,
    pub(crate) path_bits: u8,
    pub(crate) wqe: u32,
    pub(crate) is_recv: bool,
    pub(crate) solicited: bool,
    /// 0 unless a model applies.
    pub(crate) ready_ns: u64,
}

/// A place in the ring, being filled.
pub(crate) struct Reserved<'a> {
    cq: &'a CqShared,
    held: Held<'a>,
    index: u32,
    carries: bool,
}

impl CqShared {
    fn entry(&self, fabric: &Fabric, index: u32) -> &'static Cqe {
        let at = u64::from(index & self.mask.get());
        fabric.region().at(self.entries.get() + at * 64)
    }

    fn extra(&self, fabric: &Fabric, index: u32) -> &'static Extra {
        let mask = u64::from(self.mask.get());
        fabric.region().at(self.entries.get() + (mask + 1 + (u64::from(index) & mask)) * 64)
    }

    fn payload(&self, fabric: &Fabric, index: u32) -> *mut u8 {
        let mask = u64::from(self.mask.get());
        let at = (mask + 1) * 128 + (u64::from(index) & mask) * u64::from(MAX_INLINE);
        fabric.region().bytes(self.entries.get() + at)
    }

    fn data_at(&self, fabric: &Fabric, index: u32, len: u32) -> *mut u8 {
        if len <= IN_ENTRY {
            std::ptr::from_ref(&self.entry(fabric, index).data).cast_mut().cast()
        } else {
            self.payload(fabric, index)
        }
    }

    /// The next place; `None` if the queue has overrun.
    #[inline]
    pub(crate) fn reserve(&self, fabric: &Fabric) -> Option<Reserved<'_>> {
        let fill = &self.filling;
        let held = fill.lock.lock(fabric);
        let index = fill.tail.get();
        if index.wrapping_sub(fill.head_seen.get()) > self.mask.get() {
            fill.head_seen.set(self.emptying.head.seen());
            if index.wrapping_sub(fill.head_seen.get()) > self.mask.get() || fill.failed.get() != 0 {
                drop(held);
                self.fail(fabric);
                return None;
            }
        }
        Some(Reserved { cq: self, held, index, carries: false })
    }

    /// The queue is full, or is made to look so.
    #[cold]
    pub(crate) fn fail(&self, fabric: &Fabric) {
        if self.filling.failed.swap(1) == 0 {
            fabric.put_off(PutOff::Overrun(fabric.region().offset_of(self)));
        }
    }
}

impl Reserved<'_> {
    /// Where `len` bytes of payload go, which the one who polls will put into the receive's memory.
    #[inline]
    pub(crate) fn payload(&mut self, fabric: &Fabric, len: u32) -> *mut u8 {
        self.carries = true;
        self.cq.data_at(fabric, self.index, len)
    }

    /// The 40 bytes before a datagram.
    pub(crate) fn set_grh(&mut self, fabric: &Fabric, grh: &[u64; 5]) {
        for (word, value) in self.cq.extra(fabric, self.index).grh.iter().zip(grh) {
            word.set(*value);
        }
    }

    /// Publishes the completion of a request of `qp`, and tells the owner if he asked for it.
    #[inline]
    pub(crate) fn commit(self, fabric: &Fabric, qp: &QpShared, c: &Completion) {
        let cq = self.cq;
        let entry = cq.entry(fabric, self.index);
        entry.qpn.set(qp.qpn.get() | (qp.epoch.get() << 24));
        entry.wr_id.set(c.wr_id);
        let recv = if c.is_recv { IS_RECV } else { 0 };
        let carries = if self.carries { CARRIES } else { 0 };
        entry.word.set(c.status | (c.opcode << 8) | (c.flags << 16) | recv | carries);
        entry.byte_len.set(c.byte_len);
        entry.imm.set(c.imm);
        entry.src.set(c.src_qp | (u32::from(c.sl) << 24));
        entry.wqe.set(c.wqe);
        entry.path.set(u32::from(c.slid) | (u32::from(c.pkey_index) << 16) | (u32::from(c.path_bits) << 24));
        if cq.flags.get() != 0 || fabric.has_model {
            let extra = cq.extra(fabric, self.index);
            extra.at_ns.set(clock::now().max(c.ready_ns));
            extra.ready_ns.set(c.ready_ns);
        }
        entry.seq.publish(self.index.wrapping_add(1));
        let fill = &cq.filling;
        fill.tail.set(self.index.wrapping_add(1));
        let armed = fill.armed.get();
        if armed != 0 && (armed == 1 || c.solicited || c.status != wc_status::SUCCESS) {
            fill.armed.set(0);
            drop(self.held);
            cq.notify(fabric, c.ready_ns);
        }
    }
}

impl CqShared {
    #[cold]
    fn notify(&self, fabric: &Fabric, ready_ns: u64) {
        let record = Record { about: ABOUT_CQ, id: self.id.get(), event: 0, cookie: self.cookie.get() };
        if ready_ns > clock::now() {
            fabric.service.later(ready_ns, self.channel.get(), record);
        } else {
            fabric.pipes.send(self.channel.get(), record);
        }
    }
}

/// Tells the owner that his queue has overrun, and stops the queue pairs that use it.
pub(crate) fn overrun(fabric: &Fabric, offset: u64) {
    let cq: &CqShared = fabric.region().at(offset);
    let record = Record { about: ABOUT_CQ, id: cq.id.get(), event: event::CQ_ERR, cookie: cq.cookie.get() };
    fabric.pipes.send(cq.context.get(), record);
    qp::fail_all_with(fabric, offset);
}

/// A completion queue.
pub struct Cq {
    pub(crate) hca: Arc<Hca>,
    pub(crate) offset: u64,
    shared: &'static CqShared,
    channel: Option<Arc<ChannelState>>,
    /// Queue pairs that complete here (twice if both ways).
    pub(crate) users: Arc<AtomicU32>,
    gone: Mutex<bool>,
}

impl Cq {
    pub(crate) fn new(hca: &Arc<Hca>, cqe: u32, channel: Option<&Channel>, cookie: u64, flags: u32) -> Result<Cq> {
        let fabric = &hca.fabric;
        let size = cqe.next_power_of_two();
        let offset = alloc::allocate(fabric, size_of::<CqShared>() as u64)?;
        let entries =
            alloc::allocate(fabric, u64::from(size) * PER_ENTRY).inspect_err(|_| alloc::release(fabric, offset))?;
        let shared: &CqShared = fabric.region().at(offset);
        let id = fabric.next_id();
        shared.id.set(id);
        shared.mask.set(size - 1);
        shared.flags.set(flags & (CQ_TIMESTAMP_RAW | CQ_TIMESTAMP_WALL));
        shared.device.set(hca.device as u32);
        shared.channel.set(channel.map_or(0, |channel| channel.0.mailbox.id));
        shared.context.set(hca.events.id);
        shared.owner.set(fabric.token());
        shared.cookie.set(cookie);
        shared.entries.publish(entries);
        hca.events.expect(ABOUT_CQ, id);
        if let Some(channel) = channel {
            channel.0.users.fetch_add(1, Ordering::AcqRel);
            channel.0.mailbox.expect(ABOUT_CQ, id);
        }
        Ok(Cq {
            hca: Arc::clone(hca),
            offset,
            shared,
            channel: channel.map(|channel| Arc::clone(&channel.0)),
            users: Arc::default(),
            gone: Mutex::new(false),
        })
    }

    /// Takes up to `out.len()` completions; the number of those written.
    /// # Errors
    /// None today: an overrun queue gives what it held, then nothing.
    #[inline]
    pub fn poll(&self, out: &mut [Wc]) -> Result<usize> {
        let (fabric, cq) = (&*self.hca.fabric, self.shared);
        let head = cq.emptying.head.get();
        if cq.entry(fabric, head).seq.seen() != head.wrapping_add(1) {
            fabric.service.while_idle(fabric);
            fabric.idle.polled_in_vain();
            return Ok(0);
        }
        fabric.idle.polled();
        let polling = cq.emptying.poll_lock.lock(fabric);
        let mut head = cq.emptying.head.get();
        let mut count = 0;
        while count < out.len() {
            let entry = cq.entry(fabric, head);
            if entry.seq.seen() != head.wrapping_add(1) || (fabric.has_model && !self.is_due(head)) {
                break;
            }
            if self.take(entry, head, &mut out[count]) {
                count += 1;
            }
            head = head.wrapping_add(1);
            cq.emptying.head.publish(head);
        }
        drop(polling);
        fabric.settle();
        Ok(count)
    }

    #[cold]
    fn is_due(&self, index: u32) -> bool {
        let ready = self.shared.extra(&self.hca.fabric, index).ready_ns.get();
        ready == 0 || ready <= clock::now()
    }

    /// Turns an entry into `wc`; `false` if its queue pair is gone or was reset since.
    #[inline]
    fn take(&self, entry: &Cqe, index: u32, wc: &mut Wc) -> bool {
        let fabric = &*self.hca.fabric;
        let number = entry.qpn.get();
        let qp = qp::place(fabric, number);
        if qp.qpn.get() | (qp.epoch.get() << 24) != number {
            return false;
        }
        let word = entry.word.get();
        let src = entry.src.get();
        let path = entry.path.get();
        wc.wr_id = entry.wr_id.get();
        wc.status = word & 0xff;
        wc.opcode = (word >> 8) & 0xff;
        wc.flags = (word >> 16) & 0xff;
        wc.vendor_err = 0;
        wc.byte_len = entry.byte_len.get();
        wc.imm = entry.imm.get();
        wc.qp_num = number & 0xff_ffff;
        wc.src_qp = src & 0xff_ffff;
        wc.sl = (src >> 24) as u8;
        wc.slid = path as u16;
        wc.pkey_index = ((path >> 16) & 0xff) as u16;
        wc.dlid_path_bits = (path >> 24) as u8;
        if word & IS_RECV == 0 {
            qp.sq.freed.publish(entry.wqe.get());
        } else {
            self.take_recv(qp, entry, index, word & CARRIES != 0, wc);
        }
        if self.shared.flags.get() != 0 {
            self.stamp(index, wc);
        }
        true
    }

    #[inline]
    fn take_recv(&self, qp: &QpShared, entry: &Cqe, index: u32, carries: bool, wc: &mut Wc) {
        let fabric = &*self.hca.fabric;
        let queue = qp.recv_queue(fabric);
        let wqe = entry.wqe.get();
        wc.wr_id = queue.wr_id(fabric, wqe);
        let has_grh = qp.kind.get() == qp_type::UD;
        if wc.status == wc_status::SUCCESS && (carries || has_grh) {
            let Some(pieces) = queue.pieces(fabric, wqe, qp.pd.get()) else {
                // The registration went away between the arrival and this poll.
                wc.status = wc_status::LOC_PROT_ERR;
                qp::fail_later(fabric, qp);
                queue.free(fabric, wqe);
                return;
            };
            if has_grh {
                self.put_datagram(&pieces, index, carries, wc);
            } else {
                let from = self.shared.data_at(fabric, index, wc.byte_len);
                copy::scatter(pieces.as_slice(), from, wc.byte_len as usize);
            }
        }
        queue.free(fabric, wqe);
    }

    fn put_datagram(&self, pieces: &copy::Pieces, index: u32, carries: bool, wc: &Wc) {
        let fabric = &*self.hca.fabric;
        if wc.flags & wc_flags::GRH != 0 {
            let grh = std::ptr::from_ref(&self.shared.extra(fabric, index).grh);
            copy::scatter(pieces.as_slice(), grh.cast(), GRH_BYTES as usize);
        }
        if carries {
            let len = wc.byte_len - GRH_BYTES;
            let body = pieces.window(u64::from(GRH_BYTES), u64::from(len));
            copy::scatter(body.as_slice(), self.shared.data_at(fabric, index, len), len as usize);
        }
    }

    #[cold]
    fn stamp(&self, index: u32, wc: &mut Wc) {
        let at = self.shared.extra(&self.hca.fabric, index).at_ns.get();
        wc.ts_raw = clock::ticks(&self.hca.spec().clock, at);
        wc.ts_wall = clock::wall().wrapping_sub(clock::now()).wrapping_add(at);
    }

    /// Asks for one event on the channel at the next completion (or the next solicited one).
    /// # Errors
    /// None today.
    pub fn arm(&self, solicited_only: bool) -> Result<()> {
        let fill = &self.shared.filling;
        let _held = fill.lock.lock(&self.hca.fabric);
        // An outstanding request for any completion is not weakened by one for solicited ones.
        if !(solicited_only && fill.armed.get() == 1) {
            fill.armed.set(if solicited_only { 2 } else { 1 });
        }
        Ok(())
    }

    /// # Errors
    /// EINVAL if more completions wait than fit, ENOMEM.
    pub fn resize(&self, cqe: u32) -> Result<()> {
        let (fabric, cq) = (&*self.hca.fabric, self.shared);
        if cqe == 0 || cqe > self.hca.limits().max_cqe as u32 {
            return Err(Errno(libc::EINVAL));
        }
        let size = cqe.next_power_of_two();
        let fresh = alloc::allocate(fabric, u64::from(size) * PER_ENTRY)?;
        let old = {
            let _polling = cq.emptying.poll_lock.lock(fabric);
            let _filling = cq.filling.lock.lock(fabric);
            let (head, tail) = (cq.emptying.head.get(), cq.filling.tail.get());
            if tail.wrapping_sub(head) > size {
                alloc::release(fabric, fresh);
                return Err(Errno(libc::EINVAL));
            }
            let (old, old_size) = (cq.entries.get(), u64::from(cq.mask.get()) + 1);
            let region = fabric.region();
            for index in (0..tail.wrapping_sub(head)).map(|step| u64::from(head.wrapping_add(step))) {
                let (from, to) = (index & (old_size - 1), index & (u64::from(size) - 1));
                let parts = [(0, 64), (64, 64), (128, u64::from(MAX_INLINE))];
                for (before, bytes) in parts {
                    let source = region.bytes(old + before * old_size + from * bytes);
                    let target = region.bytes(fresh + before * u64::from(size) + to * bytes);
                    // SAFETY: both places are inside their rings, which both locks give to us (rule M2).
                    unsafe { std::ptr::copy_nonoverlapping(source, target, bytes as usize) };
                }
            }
            cq.mask.set(size - 1);
            cq.entries.publish(fresh);
            cq.filling.head_seen.set(head);
            old
        };
        alloc::release(fabric, old);
        Ok(())
    }

    /// How many completions fit.
    #[must_use]
    pub fn cqe(&self) -> u32 {
        self.shared.mask.get() + 1
    }

    /// # Errors
    /// EBUSY while a queue pair uses it.
    pub fn destroy(&self) -> Result<()> {
        let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        if self.users.load(Ordering::Acquire) != 0 {
            return Err(Errno(libc::EBUSY));
        }
        if std::mem::replace(&mut *gone, true) {
            return Ok(());
        }
        let id = self.shared.id.get();
        self.hca.events.forget(ABOUT_CQ, id);
        if let Some(channel) = &self.channel {
            channel.mailbox.forget(ABOUT_CQ, id);
            channel.users.fetch_sub(1, Ordering::AcqRel);
        }
        alloc::release(&self.hca.fabric, self.shared.entries.get());
        alloc::release(&self.hca.fabric, self.offset);
        Ok(())
    }
}

/// The completion of a receive that ended in an error, or was flushed.
pub(crate) fn failed_recv(status: u32, wqe: u32) -> Completion {
    Completion { status, opcode: wc_opcode::RECV, wqe, is_recv: true, ..Completion::default() }
}

const _: () = assert!(size_of::<Cqe>() == 64 && size_of::<Extra>() == 64 && size_of::<CqShared>() == 192);
