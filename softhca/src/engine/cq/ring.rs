// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completion queues as they lie in the region: the ring, which any process fills and its owner empties, and the
//! functions that fill it. Called by: modules that complete requests (wire, send, qp: `reserve`, `commit`), this
//! folder. Grade: hot; in a steady exchange one cache line per completion changes hands: the entry, in which up to 24
//! bytes of payload travel. Longer payloads wait in the receiver's `inbox` or, when it is full, beside the entry (to
//! 256 bytes). Thread rule: fillers hold `lock`, the poller `poll_lock`. An entry is the filler's until its number is
//! published in `seq`, then the poller's until `head` moves. Never hold `lock` and take another. A completion exists
//! once `tail` counts it: if its filler dies then, the next holder of the lock publishes it.

use crate::engine::codes::{wc_opcode, wc_status};
use crate::engine::memory::layout::MAX_CARRIED;
use crate::engine::qp::inbox::Stretch;
use crate::engine::{ABOUT_CQ, Deferred, Fabric, Held, QpShared, Record, Shared, SharedLock, W32, W64, clock, place};

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
    /// Time before which polls do not see it (the model); 0: at once.
    pub(crate) ready_ns: u64,
}

/// Makes the completion of a receive that failed or was flushed. `queue`: as `Cqe::wr_id`.
pub(crate) fn failed_recv(status: u32, wqe: u32, queue: u64) -> Completion {
    Completion { wr_id: queue, status, opcode: wc_opcode::RECV, wqe, is_recv: true, ..Completion::default() }
}

/// Bytes of payload that fit in the entry itself.
pub(crate) const IN_ENTRY: u32 = 24;
pub(super) const IS_RECV: u32 = 1 << 30;
/// `Cqe::word`, with `CARRIES`: the payload waits in the queue pair's inbox, at the stretch that `Cqe::data` names.
pub(super) const STAGED: u32 = 1 << 29;
/// `Cqe::word`: the payload travels with the entry; the poller puts it into the receive's memory.
pub(super) const CARRIES: u32 = 1 << 31;
pub(super) const STAMPED: u32 = 1 << 28;
/// `Cqe::word`: the entry has all of its completion, which is polled though its queue pair is gone.
pub(super) const KEPT: u32 = 1 << 27;
/// `Cqe::qpn` of a voided completion: no queue pair has this number and epoch.
pub(super) const VOID: u32 = u32::MAX;
pub(crate) const GRH_BYTES: u32 = 40;

#[repr(C, align(64))]
pub(super) struct Cqe {
    /// Number of the completion plus one, once it is complete.
    pub(super) seq: W32,
    /// Queue pair number, and its epoch in the top 8 bits.
    pub(super) qpn: W32,
    /// Sends: the program's number of the request. XRC receives: the offset of the queue. Other receives: 0.
    pub(super) wr_id: W64,
    /// Status, opcode, `wc_flags` (a byte each), and the flags above.
    pub(super) word: W32,
    pub(super) byte_len: W32,
    pub(super) imm: W32,
    /// Source queue pair, service level in the top 8 bits.
    pub(super) src: W32,
    /// Sends: the number of requests that are done, this one included. Receives: the argument of `recv::free`.
    pub(super) wqe: W32,
    /// Source LID, pkey index, path bits.
    pub(super) path: W32,
    pub(super) data: [W64; 3],
}

#[repr(C, align(64))]
pub(super) struct Extra {
    /// Time of completion, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(super) at_ns: W64,
    /// Time before which polls do not see it (the model).
    pub(super) ready_ns: W64,
    pub(super) grh: [W64; 5],
}

pub(super) const PER_ENTRY: u64 = 64 + 64 + MAX_CARRIED as u64;

/// `Filling::armed`: a filler is giving the event.
const TELLING: u32 = 3;

#[repr(C, align(64))]
pub(super) struct Filling {
    pub(super) lock: SharedLock,
    pub(super) tail: W32,
    /// `head` as last read: fillers look again only when the ring seems full.
    pub(super) head_seen: W32,
    /// Which completion gives an event: 0 none, 1 the next, 2 the next solicited one; or `TELLING`.
    pub(super) armed: W32,
    pub(super) failed: W32,
}

#[repr(C, align(64))]
pub(super) struct Emptying {
    pub(super) poll_lock: SharedLock,
    pub(super) head: W32,
    /// Time since which completions are stamped.
    pub(super) stamping_ns: W64,
}

#[repr(C, align(64))]
pub(crate) struct CqShared {
    pub(super) id: W32,
    /// Entries minus one; entries are a power of two.
    pub(super) mask: W32,
    pub(super) flags: W32,
    pub(super) device: W32,
    /// Pipe of its channel, 0 for none; and of its context.
    pub(super) channel: W32,
    pub(super) context: W32,
    pub(crate) owner: W32,
    /// Whether completions are stamped: those of a queue with `flags`, unless it was last read without stamps.
    pub(super) stamping: W32,
    pub(super) cookie: W64,
    pub(super) entries: W64,
    pub(super) filling: Filling,
    pub(super) emptying: Emptying,
}

// SAFETY: words and such structures only, repr(C), zero is valid.
unsafe impl Shared for Cqe {}
// SAFETY: words only, repr(C), zero is valid.
unsafe impl Shared for Extra {}
// SAFETY: words and such structures only, repr(C), zero is valid.
unsafe impl Shared for CqShared {}

/// Tells the queue pair that its oldest send (number `wqe`), or the receive that it has in hand, has completed.
#[inline]
fn has_completed(qp: &QpShared, is_recv: bool, wqe: u32) {
    if is_recv {
        qp.resp.in_hand.publish(0);
    } else {
        qp.sq.done.publish(wqe);
    }
}

pub(crate) struct Reserved<'a> {
    cq: &'a CqShared,
    held: Held<'a>,
    index: u32,
    flags: u32,
}

impl CqShared {
    pub(super) fn entry(&self, fabric: &Fabric, index: u32) -> &'static Cqe {
        let at = u64::from(index & self.mask.get());
        fabric.region().at(self.entries.get() + at * 64)
    }

    pub(super) fn extra(&self, fabric: &Fabric, index: u32) -> &'static Extra {
        let mask = u64::from(self.mask.get());
        fabric.region().at(self.entries.get() + (mask + 1 + (u64::from(index) & mask)) * 64)
    }

    /// Returns where `len` bytes of payload lie: in the entry, or beside it.
    pub(super) fn data_at(&self, fabric: &Fabric, index: u32, len: u32) -> *mut u8 {
        if len <= IN_ENTRY {
            return std::ptr::from_ref(&self.entry(fabric, index).data).cast_mut().cast();
        }
        let mask = u64::from(self.mask.get());
        let at = (mask + 1) * 128 + (u64::from(index) & mask) * u64::from(MAX_CARRIED);
        fabric.region().bytes(self.entries.get() + at)
    }

    #[inline]
    pub(super) fn lock_filling(&self, fabric: &Fabric) -> Held<'_> {
        let held = self.filling.lock.lock(fabric);
        if held.is_inherited {
            self.publish_last(fabric);
        }
        held
    }

    /// Publishes the last completion if the filler that wrote it has died before it could.
    #[cold]
    fn publish_last(&self, fabric: &Fabric) {
        let tail = self.filling.tail.get();
        let last = tail.wrapping_sub(1);
        let entry = self.entry(fabric, last);
        if self.emptying.head.seen() != tail && entry.seq.get() != tail {
            let qp = place(fabric, entry.qpn.get());
            if qp.name() == entry.qpn.get() {
                has_completed(qp, entry.word.get() & IS_RECV != 0, entry.wqe.get());
            }
            entry.seq.publish(tail);
        }
    }

    /// Called after a process has died while it completed requests here. Gives the event that may be missing; the
    /// program may get one event too many.
    #[cold]
    pub(crate) fn inherit(&self, fabric: &Fabric) {
        let held = self.lock_filling(fabric);
        let is_told = self.filling.armed.swap(0) != 0;
        drop(held);
        if is_told {
            self.notify(fabric, 0);
        }
    }

    /// Reserves the next entry; `None` if the queue has overrun.
    #[inline]
    pub(crate) fn reserve(&self, fabric: &Fabric) -> Option<Reserved<'_>> {
        let fill = &self.filling;
        let held = self.lock_filling(fabric);
        let index = fill.tail.get();
        if index.wrapping_sub(fill.head_seen.get()) > self.mask.get() {
            fill.head_seen.set(self.emptying.head.seen());
            if index.wrapping_sub(fill.head_seen.get()) > self.mask.get() || fill.failed.get() != 0 {
                drop(held);
                self.fail(fabric);
                return None;
            }
        }
        Some(Reserved { cq: self, held, index, flags: 0 })
    }

    /// Fails the queue because it has overrun, or a rule for faults says so.
    #[cold]
    pub(crate) fn fail(&self, fabric: &Fabric) {
        if self.filling.failed.swap(1) == 0 {
            fabric.deferred.add(Deferred::Overrun(fabric.region().offset_of(self)));
        }
    }

    /// Notifies the queue's channel of a completion: now, or at `ready_ns` if polls do not see the completion before.
    #[cold]
    pub(super) fn notify(&self, fabric: &Fabric, ready_ns: u64) {
        let record = Record { about: ABOUT_CQ, id: self.id.get(), event: 0, cookie: self.cookie.get() };
        if ready_ns > clock::now() {
            fabric.timers.notify_at(ready_ns, self.channel.get(), record);
        } else {
            fabric.pipes.send(self.channel.get(), record);
        }
    }

    #[cold]
    pub(crate) fn raise(&self, fabric: &Fabric, event: u32) {
        let record = Record { about: ABOUT_CQ, id: self.id.get(), event, cookie: self.cookie.get() };
        fabric.pipes.send(self.context.get(), record);
    }
}

impl Reserved<'_> {
    /// Returns where `len` bytes of payload go; the poller will put them into the receive's memory.
    pub(crate) fn payload(&mut self, fabric: &Fabric, len: u32) -> *mut u8 {
        self.flags = CARRIES;
        self.cq.data_at(fabric, self.index, len)
    }

    /// Notes that the payload is in this stretch of the queue pair's inbox.
    pub(crate) fn staged(&mut self, fabric: &Fabric, stretch: Stretch) {
        self.flags = CARRIES | STAGED;
        self.cq.entry(fabric, self.index).data[0].set(u64::from(stretch.start) << 32 | u64::from(stretch.end));
    }

    pub(crate) fn set_grh(&mut self, fabric: &Fabric, grh: &[u64; 5]) {
        for (word, value) in self.cq.extra(fabric, self.index).grh.iter().zip(grh) {
            word.set(*value);
        }
    }

    /// Publishes the completion of a request of `qp`, which notes that it is done; notifies the owner of an armed
    /// queue.
    #[inline]
    pub(crate) fn commit(self, fabric: &Fabric, qp: &QpShared, c: &Completion) {
        let cq = self.cq;
        let entry = cq.entry(fabric, self.index);
        entry.qpn.set(qp.name());
        entry.wr_id.set(c.wr_id);
        let recv = if c.is_recv { IS_RECV } else { 0 };
        let stamping = cq.stamping.get() != 0;
        let stamped = if stamping { STAMPED } else { 0 };
        entry.word.set(c.status | (c.opcode << 8) | (c.flags << 16) | recv | stamped | self.flags);
        entry.byte_len.set(c.byte_len);
        entry.imm.set(c.imm);
        entry.src.set(c.src_qp | (u32::from(c.sl) << 24));
        entry.wqe.set(c.wqe);
        entry.path.set(u32::from(c.slid) | (u32::from(c.pkey_index) << 16) | (u32::from(c.path_bits) << 24));
        if stamping || fabric.has_model {
            let extra = cq.extra(fabric, self.index);
            let at_ns = clock::now().max(c.ready_ns);
            extra.at_ns.set(at_ns);
            if let Some(trace) = fabric.trace.as_ref().filter(|_| cq.flags.get() != 0) {
                trace.write(&fabric.devices()[cq.device.get() as usize], qp.qpn.get(), c, at_ns);
            }
            extra.ready_ns.set(c.ready_ns);
        }
        let fill = &cq.filling;
        fill.tail.publish(self.index.wrapping_add(1));
        has_completed(qp, c.is_recv, c.wqe);
        entry.seq.publish(self.index.wrapping_add(1));
        let armed = fill.armed.get();
        if armed == 1 || (armed == 2 && (c.solicited || c.status != wc_status::SUCCESS)) {
            fill.armed.set(TELLING);
            drop(self.held);
            cq.notify(fabric, c.ready_ns);
            fill.armed.replace(TELLING, 0);
        }
    }
}

const _: () = assert!(size_of::<Cqe>() == 64 && size_of::<Extra>() == 64 && size_of::<CqShared>() == 192);
