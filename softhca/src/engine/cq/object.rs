// SPDX-License-Identifier: MIT OR Apache-2.0
//! A completion queue as a program holds it: made, armed, resized, destroyed; and the completions of queue pairs that
//! are destroyed or reset: voided, removed, or kept for the program to poll. Called by: `verbs`; qp (destroyed, reset),
//! srq (destroyed). Grade: setup, but for `arm`. Thread rule: any thread; the thread that withdraws completions holds
//! `poll_lock`, and `lock` where entries move.

use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::codes::event;
use crate::engine::cq::ring::{CARRIES, Cqe, IS_RECV, KEPT, PER_ENTRY, STAGED, VOID};
use crate::engine::memory::layout::MAX_CARRIED;
use crate::engine::{
    Channel, CqShared, Errno, Fabric, Hca, QpShared, Result, TIMESTAMP_RAW, TIMESTAMP_WALL, Use, Users, Wc, place,
};

/// A completion queue.
pub struct Cq {
    pub(crate) hca: Arc<Hca>,
    pub(crate) offset: u64,
    pub(super) shared: &'static CqShared,
    in_channel: Mutex<Option<Use>>,
    /// Queue pairs that complete here (counted twice if sends and receives do), and shared receive queues of XRC.
    pub(crate) users: Users,
}

impl Cq {
    /// Asks for one event on the channel at the next completion (or the next solicited one). With `arm_tells_of_unread`
    /// the adapter gives it at once if completions were not polled.
    pub fn arm(&self, solicited_only: bool) {
        let fill = &self.shared.filling;
        let held = self.shared.lock_filling(&self.hca.fabric);
        if !solicited_only && let Some(ready_ns) = self.unread_that_is_told() {
            fill.armed.set(0);
            drop(held);
            return self.shared.notify(&self.hca.fabric, ready_ns);
        }
        // A request for solicited completions does not weaken an outstanding request for any completion.
        if !(solicited_only && fill.armed.get() == 1) {
            fill.armed.set(if solicited_only { 2 } else { 1 });
        }
    }

    /// Time from which polls see the oldest unpolled completion, if arming notifies of it. Call under `filling.lock`.
    fn unread_that_is_told(&self) -> Option<u64> {
        let (fabric, shared) = (&*self.hca.fabric, self.shared);
        let is_told = fabric.devices()[shared.device.get() as usize].behaviour.arm_tells_of_unread;
        let head = shared.emptying.head.seen();
        let is_unread = is_told && head != shared.filling.tail.get();
        is_unread.then(|| if fabric.has_model { shared.extra(fabric, head).ready_ns.get() } else { 0 })
    }

    /// Errors: EINVAL if more completions wait than fit, ENOMEM.
    pub fn resize(&self, cqe: u32) -> Result<()> {
        let (fabric, cq) = (&*self.hca.fabric, self.shared);
        if cqe == 0 || cqe > self.hca.limits().max_cqe as u32 {
            return Err(Errno(libc::EINVAL));
        }
        let size = cqe.next_power_of_two();
        let fresh = fabric.allocate(u64::from(size) * PER_ENTRY)?;
        let old = {
            let _polling = cq.emptying.poll_lock.lock(fabric);
            let _filling = cq.lock_filling(fabric);
            let (head, tail) = (cq.emptying.head.get(), cq.filling.tail.get());
            if tail.wrapping_sub(head) > size {
                fabric.release(fresh);
                return Err(Errno(libc::EINVAL));
            }
            let old = cq.entries.get();
            for index in (0..tail.wrapping_sub(head)).map(|step| head.wrapping_add(step)) {
                copy_entry(fabric, (old, cq.mask.get(), index), (fresh, size - 1, index));
            }
            // In this order: if this process dies in between, the fillers of other processes stay inside of both rings.
            cq.mask.set(cq.mask.get().min(size - 1));
            cq.entries.publish(fresh);
            cq.mask.publish(size - 1);
            cq.filling.head_seen.set(head);
            old
        };
        fabric.release(old);
        Ok(())
    }

    /// Returns how many completions fit.
    pub fn cqe(&self) -> u32 {
        (self.shared.mask.get() + 1).min(self.hca.limits().max_cqe as u32)
    }

    /// Errors: EBUSY while a queue pair uses it.
    pub fn destroy(&self) -> Result<()> {
        self.users.are_gone()?;
        self.in_channel.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.hca.fabric.release(self.shared.entries.get());
        self.hca.fabric.release(self.offset);
        Ok(())
    }
}

impl Hca {
    /// Creates a queue for at least `cqe` completions; `cookie` comes back from `Channel::read_event` and in events.
    /// `flags`: those of a completion that it has beside the usual ones (`TIMESTAMP_*`; others are left out).
    /// Errors: EINVAL, ENOMEM.
    pub fn create_cq(self: &Arc<Self>, cqe: u32, channel: Option<&Channel>, cookie: u64, flags: u32) -> Result<Cq> {
        if cqe == 0 || cqe > self.limits().max_cqe as u32 {
            return Err(Errno(libc::EINVAL));
        }
        let fabric = &self.fabric;
        let size = cqe.next_power_of_two();
        let offset = fabric.allocate(size_of::<CqShared>() as u64)?;
        let entries = fabric.allocate(u64::from(size) * PER_ENTRY).inspect_err(|_| fabric.release(offset))?;
        let shared: &CqShared = fabric.region().at(offset);
        shared.id.set(fabric.next_id());
        shared.mask.set(size - 1);
        shared.flags.set(flags & (TIMESTAMP_RAW | TIMESTAMP_WALL));
        shared.stamping.set(shared.flags.get());
        shared.device.set(self.device as u32);
        shared.channel.set(channel.map_or(0, |channel| channel.mailbox.id));
        let tells = self.behaviour().async_events.raises(event::CQ_ERR);
        shared.context.set(if tells { self.events.id } else { 0 });
        shared.owner.set(fabric.token());
        shared.cookie.set(cookie);
        shared.entries.publish(entries);
        let in_channel = Mutex::new(channel.map(|channel| channel.users.enter()));
        Ok(Cq { hca: Arc::clone(self), offset, shared, in_channel, users: Users::default() })
    }
}

impl CqShared {
    /// Voids the completions of queue pair `qpn`'s receives (XRC: of receives from the shared queue at `queue`),
    /// because no program will poll them. Calls `each` with the request of each.
    pub(crate) fn withdraw(&self, fabric: &Fabric, qpn: u32, queue: u64, mut each: impl FnMut(u32)) {
        let _polling = self.emptying.poll_lock.lock(fabric);
        for (_, entry) in self.unpolled(fabric) {
            let is_recv = entry.word.get() & (IS_RECV | KEPT) == IS_RECV && entry.qpn.get() != VOID;
            let into = entry.wr_id.get();
            if is_recv && if into == 0 { entry.qpn.get() & 0xff_ffff == qpn } else { into == queue } {
                each(entry.wqe.get());
                entry.qpn.set(VOID);
                entry.wr_id.set(0);
            }
        }
    }

    /// Returns the completions that wait, with their indices. The caller holds `poll_lock`.
    fn unpolled(&self, fabric: &Fabric) -> impl Iterator<Item = (u32, &'static Cqe)> {
        let head = self.emptying.head.get();
        let all = (0..).map(move |step| head.wrapping_add(step)).map(move |index| (index, self.entry(fabric, index)));
        all.take_while(|(index, entry)| entry.seq.seen() == index.wrapping_add(1))
    }

    /// Keeps the completions of `qp`, which is about to be destroyed or reset: copies the payload of each to its
    /// receive's memory, so that the completion does not need the queue pair.
    pub(crate) fn keep(&self, fabric: &Fabric, qp: &QpShared) {
        let _polling = self.emptying.poll_lock.lock(fabric);
        let number = qp.name();
        for (index, entry) in self.unpolled(fabric) {
            let word = entry.word.get();
            // A receive of XRC belongs to its shared queue.
            let is_own = entry.qpn.get() == number && (word & IS_RECV == 0 || entry.wr_id.get() == 0);
            if is_own && word & IS_RECV != 0 {
                let mut wc = Wc { status: word & 0xff, flags: (word >> 16) & 0xff, ..Wc::default() };
                wc.byte_len = entry.byte_len.get();
                self.take_recv(fabric, qp, entry, index, word, &mut wc);
                entry.wr_id.set(wc.wr_id);
                entry.word.set((word & !(0xff | CARRIES | STAGED)) | wc.status | KEPT);
            } else if is_own {
                entry.word.set(word | KEPT);
            }
        }
    }

    /// Removes the completions that no program will poll from the ring; those behind them move up.
    pub(crate) fn compact(&self, fabric: &Fabric) {
        let _polling = self.emptying.poll_lock.lock(fabric);
        let _filling = self.lock_filling(fabric);
        let (head, tail) = (self.emptying.head.get(), self.filling.tail.get());
        let (ring, mask) = (self.entries.get(), self.mask.get());
        let mut to = head;
        for from in (0..tail.wrapping_sub(head)).map(|step| head.wrapping_add(step)) {
            if self.is_void(fabric, from) {
                continue;
            }
            if to != from {
                let entry = self.entry(fabric, to);
                entry.seq.publish(0);
                copy_entry(fabric, (ring, mask, from), (ring, mask, to));
                entry.seq.publish(to.wrapping_add(1));
            }
            to = to.wrapping_add(1);
        }
        self.filling.tail.set(to);
        while to != tail {
            self.entry(fabric, to).seq.publish(0);
            to = to.wrapping_add(1);
        }
    }

    /// Whether a completion has lost its queue pair, so that no program will poll it.
    #[cold]
    pub(super) fn is_void(&self, fabric: &Fabric, index: u32) -> bool {
        let entry = self.entry(fabric, index);
        let (number, word) = (entry.qpn.get(), entry.word.get());
        let is_current = place(fabric, number).name() == number;
        // A receive of XRC belongs to its shared queue, a kept completion to the program.
        let is_of_xrc = word & IS_RECV != 0 && entry.wr_id.get() != 0;
        number == VOID || !(is_current || is_of_xrc || word & KEPT != 0)
    }
}

/// Copies a completion from a place to another one; each is a ring, its mask and an index. The caller holds both locks.
fn copy_entry(fabric: &Fabric, from: (u64, u32, u32), to: (u64, u32, u32)) {
    for (before, bytes) in [(0, 64), (64, 64), (128, u64::from(MAX_CARRIED))] {
        let place = |(ring, mask, index): (u64, u32, u32)| {
            fabric.region().bytes(ring + before * (u64::from(mask) + 1) + u64::from(index & mask) * bytes)
        };
        // SAFETY: both places are inside their rings, which both locks give to us (rule M2), and they differ.
        unsafe { std::ptr::copy_nonoverlapping(place(from), place(to), bytes as usize) };
    }
}
