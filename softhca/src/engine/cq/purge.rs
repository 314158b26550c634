// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completions of queue pairs that go: voided, removed, or kept for the program to poll.
//!
//! Called by: qp (destroyed, reset), srq (destroyed). Grade: setup. Thread rule: `poll_lock`, and `lock` where
//! entries move.

use crate::engine::{
    cq::ring::{CARRIES, CqShared, IS_RECV, KEPT, STAGED, VOID},
    fabric::Fabric,
    memory::layout::MAX_CARRIED,
    qp::shared::{QpShared, place},
    spec::work_request::Wc,
};

impl CqShared {
    /// Nobody will see the completions of receives by queue pair `qpn` or, for XRC, into the shared queue at `queue`
    /// any more: gives the request of each to `each`, and voids it.
    pub(crate) fn withdraw(&self, fabric: &Fabric, qpn: u32, queue: u64, mut each: impl FnMut(u32)) {
        let _polling = self.emptying.poll_lock.lock(fabric);
        let mut index = self.emptying.head.get();
        while self.entry(fabric, index).seq.seen() == index.wrapping_add(1) {
            let entry = self.entry(fabric, index);
            let is_recv = entry.word.get() & (IS_RECV | KEPT) == IS_RECV && entry.qpn.get() != VOID;
            let into = entry.wr_id.get();
            if is_recv && if into == 0 { entry.qpn.get() & 0xff_ffff == qpn } else { into == queue } {
                each(entry.wqe.get());
                entry.qpn.set(VOID);
                entry.wr_id.set(0);
            }
            index = index.wrapping_add(1);
        }
    }

    /// Keeps the completions of `qp`, which is about to go: each is made complete in itself, and its payload goes to
    /// the memory of its receive.
    pub(crate) fn keep(&self, fabric: &Fabric, qp: &QpShared) {
        let _polling = self.emptying.poll_lock.lock(fabric);
        let number = qp.name();
        let mut index = self.emptying.head.get();
        while self.entry(fabric, index).seq.seen() == index.wrapping_add(1) {
            let entry = self.entry(fabric, index);
            let word = entry.word.get();
            // What came by XRC is its shared queue's.
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
            index = index.wrapping_add(1);
        }
    }

    /// Completions that nobody will see leave the ring; those behind them move up.
    pub(crate) fn compact(&self, fabric: &Fabric) {
        let _polling = self.emptying.poll_lock.lock(fabric);
        let _filling = self.filling.lock.lock(fabric);
        let (head, tail) = (self.emptying.head.get(), self.filling.tail.get());
        let mut to = head;
        let mut from = head;
        while from != tail {
            if !self.is_void(fabric, from) {
                if to != from {
                    self.move_entry(fabric, from, to);
                }
                to = to.wrapping_add(1);
            }
            from = from.wrapping_add(1);
        }
        self.filling.tail.set(to);
        while to != tail {
            self.entry(fabric, to).seq.publish(0);
            to = to.wrapping_add(1);
        }
    }

    /// Whether the queue pair of a completion is gone, and the completion with it.
    fn is_void(&self, fabric: &Fabric, index: u32) -> bool {
        let entry = self.entry(fabric, index);
        let (number, word) = (entry.qpn.get(), entry.word.get());
        let qp = place(fabric, number);
        let is_current = qp.name() == number;
        let is_of_xrc = word & IS_RECV != 0 && entry.wr_id.get() != 0;
        number == VOID || !(is_current || is_of_xrc || word & KEPT != 0)
    }

    fn move_entry(&self, fabric: &Fabric, from: u32, to: u32) {
        let (entry, size) = (self.entry(fabric, to), u64::from(self.mask.get()) + 1);
        entry.seq.publish(0);
        let (region, base) = (fabric.region(), self.entries.get());
        let at = |index: u32| u64::from(index) & (size - 1);
        for (before, bytes) in [(0, 64), (64, 64), (128, u64::from(MAX_CARRIED))] {
            let source = region.bytes(base + before * size + at(from) * bytes);
            let target = region.bytes(base + before * size + at(to) * bytes);
            // SAFETY: both places are inside the ring, which both locks give to us (rule M2), and they differ.
            unsafe { std::ptr::copy_nonoverlapping(source, target, bytes as usize) };
        }
        entry.seq.publish(to.wrapping_add(1));
    }
}
