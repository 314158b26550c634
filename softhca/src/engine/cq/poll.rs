// SPDX-License-Identifier: MIT OR Apache-2.0
//! Polling: takes completions from the ring, and puts payloads, from the completions or the inbox, into the memory of
//! their receives. Called by: `verbs`; `object`, for completions that outlive their queue pair. Grade: hot. Thread
//! rule: any thread; `poll_lock` lets one at a time empty the ring.

use crate::engine::codes::{qp_type, wc_flags, wc_status};
use crate::engine::cq::ring::{CARRIES, Cqe, GRH_BYTES, IS_RECV, KEPT, STAGED, STAMPED};
use crate::engine::qp::inbox::Stretch;
use crate::engine::service::while_idle;
use crate::engine::{
    Cq, CqShared, Fabric, QpShared, RecvQueue, TIMESTAMP_WALL, Wc, clock, copy, fail_later, place, run_deferred,
};

impl Cq {
    /// Takes up to `out.len()` completions and returns how many. An overrun queue gives those that it had, then none.
    pub fn poll(&self, out: &mut [Wc]) -> usize {
        self.poll_with::<true>(out.len(), |index, wc| out[index] = *wc)
    }

    /// Takes up to `room` completions, gives each with its index but without its time to `put`, and returns how many.
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
    #[inline(always)]
    fn take(&self, entry: &Cqe, index: u32, wc: &mut Wc) -> bool {
        let (fabric, cq) = (&*self.hca.fabric, self.shared);
        let number = entry.qpn.get();
        let qp = place(fabric, number);
        let word = entry.word.get();
        if qp.name() != number && cq.is_void(fabric, index) {
            return false;
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

    /// Switches the stamps of completions on or off: a program that ignores them does not pay for them.
    #[cold]
    fn set_stamping(&self, stamps: bool) {
        // Set first, so that no completion is stamped earlier.
        self.shared.emptying.stamping_ns.set(clock::now());
        self.shared.stamping.set(if stamps { self.shared.flags.get() } else { 0 });
    }

    /// Sets the times of a completion; one made while stamps were off gets the time at which they were switched on.
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
        if flags & TIMESTAMP_WALL != 0 {
            wc.ts_wall = at.wrapping_add(clock::wall_ahead());
        }
    }
}

pub(super) fn vendor_error(status: u32) -> u32 {
    if status == wc_status::SUCCESS { 0 } else { VENDOR | status }
}

/// First part of vendor errors: the emulated adapter's own vendor number.
const VENDOR: u32 = 0x5e00;

impl CqShared {
    /// Ends the receive of an entry: puts its payload into its memory, and frees its request.
    #[inline(never)]
    pub(super) fn take_recv(&self, fabric: &Fabric, qp: &QpShared, entry: &Cqe, index: u32, word: u32, wc: &mut Wc) {
        let (queue, has_grh) = match entry.wr_id.get() {
            0 => (qp.recv_queue(fabric), qp.kind.get() == qp_type::UD),
            xrc_queue => (fabric.region().at::<RecvQueue>(xrc_queue), false),
        };
        let wqe = entry.wqe.get();
        let carries = word & CARRIES != 0;
        let stretch = (word & STAGED != 0).then(|| {
            let both = entry.data[0].get();
            Stretch { start: (both >> 32) as u32, end: both as u32 }
        });
        wc.wr_id = queue.wr_id(fabric, wqe);
        if wc.status == wc_status::SUCCESS && (carries || has_grh) {
            let put = |pieces: copy::Pieces| {
                if has_grh {
                    return self.put_datagram(fabric, &pieces, index, carries, wc).is_ok();
                }
                let from = match stretch {
                    Some(stretch) => qp.inbox.at(fabric, stretch),
                    None => self.data_at(fabric, index, wc.byte_len),
                };
                // SAFETY: the memory of a posted receive, and so many bytes of a payload.
                unsafe { copy::scatter(pieces.as_slice(), from, wc.byte_len as usize) }.is_ok()
            };
            if !queue.pieces(fabric, wqe, qp.pd.get()).is_some_and(put) {
                // The program has deregistered or unmapped the receive's memory since the message arrived.
                wc.status = wc_status::LOC_PROT_ERR;
                wc.vendor_err = vendor_error(wc.status);
                fail_later(fabric, qp);
            }
        }
        if let Some(stretch) = stretch {
            qp.inbox.empty(stretch);
        }
        queue.free(fabric, wqe);
    }

    fn put_datagram(
        &self,
        fabric: &Fabric,
        pieces: &copy::Pieces,
        index: u32,
        carries: bool,
        wc: &Wc,
    ) -> crate::engine::Result<()> {
        if wc.flags & wc_flags::GRH != 0 {
            let grh = std::ptr::from_ref(&self.extra(fabric, index).grh);
            // SAFETY: the memory of a posted receive, and a header.
            unsafe { copy::scatter(pieces.as_slice(), grh.cast(), GRH_BYTES as usize) }?;
        }
        if carries {
            let len = wc.byte_len - GRH_BYTES;
            let body = copy::window(pieces.as_slice(), u64::from(GRH_BYTES), u64::from(len));
            // SAFETY: the memory of a posted receive, and so many bytes of a payload.
            unsafe { copy::scatter(body.as_slice(), self.data_at(fabric, index, len), len as usize) }?;
        }
        Ok(())
    }
}
