// SPDX-License-Identifier: MIT OR Apache-2.0
//! Polling: completions are taken from the ring, and the payloads that travelled in them go to the memory of their
//! receives.
//!
//! Called by: the C side. Grade: hot. Thread rule: any thread; `poll_lock` lets one at a time empty the ring.

use crate::engine::{
    clock,
    cq::{
        delivery::vendor_error,
        object::Cq,
        ring::{Cqe, IS_RECV, KEPT, STAMPED, VOID},
    },
    qp::shared::place,
    service::{deferred::run_deferred, thread::while_idle},
    spec::work_request::{CQ_TIMESTAMP_WALL, Wc},
};

impl Cq {
    /// Takes up to `out.len()` completions; the number of those written. An overrun queue gives what it held, then
    /// nothing.
    #[inline]
    pub fn poll(&self, out: &mut [Wc]) -> usize {
        self.poll_with::<true>(out.len(), |index, wc| out[index] = *wc)
    }

    /// Takes up to `room` completions and gives each to `put`, with its place from 0 on, and without its time; how many
    /// they were.
    #[inline]
    pub fn poll_each(&self, room: usize, put: impl FnMut(usize, &Wc)) -> usize {
        self.poll_with::<false>(room, put)
    }

    #[inline]
    fn poll_with<const STAMPS: bool>(&self, room: usize, mut put: impl FnMut(usize, &Wc)) -> usize {
        let (fabric, cq) = (&*self.hca.fabric, self.shared);
        if cq.stamping.get() != if STAMPS { cq.flags.get() } else { 0 } {
            self.set_stamping(STAMPS);
        }
        let head = cq.emptying.head.get();
        if cq.entry(fabric, head).seq.seen() != head.wrapping_add(1) {
            while_idle(fabric);
            fabric.idle.polled_in_vain();
            return 0;
        }
        fabric.idle.polled();
        let polling = cq.emptying.poll_lock.lock(fabric);
        let mut head = cq.emptying.head.get();
        let mut count = 0;
        let mut wc = Wc::default();
        while count < room {
            let entry = cq.entry(fabric, head);
            if entry.seq.seen() != head.wrapping_add(1) || (fabric.has_model && !self.is_due(head)) {
                break;
            }
            if self.take(entry, head, &mut wc) {
                if STAMPS {
                    self.stamp(entry, head, &mut wc);
                }
                put(count, &wc);
                count += 1;
            }
            head = head.wrapping_add(1);
        }
        cq.emptying.head.publish(head);
        drop(polling);
        run_deferred(fabric);
        count
    }

    #[cold]
    fn is_due(&self, index: u32) -> bool {
        let ready = self.shared.extra(&self.hca.fabric, index).ready_ns.get();
        ready == 0 || ready <= clock::now()
    }

    /// Writes an entry to `wc`; `false` if its queue pair has been destroyed or reset since.
    #[inline]
    fn take(&self, entry: &Cqe, index: u32, wc: &mut Wc) -> bool {
        let (fabric, cq) = (&*self.hca.fabric, self.shared);
        let number = entry.qpn.get();
        let qp = place(fabric, number);
        let word = entry.word.get();
        if qp.name() != number {
            // What came by XRC is its shared queue's, whatever became of the queue pair; what is kept is the program's.
            let is_of_xrc = word & IS_RECV != 0 && entry.wr_id.get() != 0;
            if number == VOID || !(is_of_xrc || word & KEPT != 0) {
                return false;
            }
        }
        let src = entry.src.get();
        let path = entry.path.get();
        wc.wr_id = entry.wr_id.get();
        wc.status = word & 0xff;
        wc.opcode = (word >> 8) & 0xff;
        wc.flags = (word >> 16) & 0xff;
        wc.vendor_err = vendor_error(wc.status);
        wc.byte_len = entry.byte_len.get();
        wc.imm = entry.imm.get();
        wc.qp_num = number & 0xff_ffff;
        wc.src_qp = src & 0xff_ffff;
        wc.sl = (src >> 24) as u8;
        wc.slid = path as u16;
        wc.pkey_index = ((path >> 16) & 0xff) as u16;
        wc.dlid_path_bits = (path >> 24) as u8;
        if word & (IS_RECV | KEPT) == 0 {
            qp.sq.freed.publish(entry.wqe.get());
        } else if word & KEPT == 0 {
            cq.take_recv(fabric, qp, entry, index, word, wc);
        }
        true
    }

    /// From now on the queue is read with stamps, or without; who made it with stamps but does not look at them is not
    /// to pay for them.
    #[cold]
    fn set_stamping(&self, stamps: bool) {
        // Before: what is stamped is no earlier.
        self.shared.emptying.stamping_ns.set(clock::now());
        self.shared.stamping.set(if stamps { self.shared.flags.get() } else { 0 });
    }

    /// Sets the times of a completion. One that was made while the queue was read without stamps gets the time at which
    /// that ended.
    #[inline]
    fn stamp(&self, entry: &Cqe, index: u32, wc: &mut Wc) {
        let flags = self.shared.flags.get();
        if flags == 0 {
            return;
        }
        let stamped = entry.word.get() & STAMPED != 0;
        let extra = self.shared.extra(&self.hca.fabric, index);
        let at = if stamped { extra.at_ns.get() } else { self.shared.emptying.stamping_ns.get() };
        wc.ts_raw = clock::ticks(&self.hca.spec().clock, at);
        if flags & CQ_TIMESTAMP_WALL != 0 {
            wc.ts_wall = at.wrapping_add(clock::wall_ahead());
        }
    }
}
