// SPDX-License-Identifier: MIT OR Apache-2.0
//! A receive ends: its payload goes from the completion, or from the inbox, to the memory of its request.
//!
//! Called by: poll, and purge for completions that outlive their queue pair. Grade: hot. Thread rule: `poll_lock`.

use crate::engine::{
    codes::{qp_type, wc_flags, wc_status},
    copy,
    cq::ring::{CARRIES, CqShared, Cqe, GRH_BYTES, STAGED},
    fabric::Fabric,
    qp::{
        inbox::Stretch,
        shared::{QpShared, fail_later},
    },
    recv::queue::RecvQueue,
    spec::work_request::Wc,
};

/// What the adapter says of a status in `ibv_wc.vendor_err`: of success nothing.
#[inline]
pub(super) fn vendor_error(status: u32) -> u32 {
    if status == wc_status::SUCCESS { 0 } else { VENDOR | status }
}

/// What vendor errors begin with: the emulated adapter's own vendor number.
const VENDOR: u32 = 0x5e00;

impl CqShared {
    /// The receive that an entry is about ends: its payload is put where it says, and its request is free.
    #[inline]
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
            let Some(pieces) = queue.pieces(fabric, wqe, qp.pd.get()) else {
                // The registration went away between the arrival and this poll.
                wc.status = wc_status::LOC_PROT_ERR;
                wc.vendor_err = vendor_error(wc.status);
                if let Some(stretch) = stretch {
                    qp.inbox.empty(stretch);
                }
                fail_later(fabric, qp);
                queue.free(fabric, wqe);
                return;
            };
            if has_grh {
                self.put_datagram(fabric, &pieces, index, carries, wc);
            } else {
                let from = match stretch {
                    Some(stretch) => qp.inbox.at(fabric, stretch),
                    None => self.data_at(fabric, index, wc.byte_len),
                };
                // SAFETY: the memory of a posted receive, and so many bytes of a payload.
                unsafe { copy::scatter(pieces.as_slice(), from, wc.byte_len as usize) };
            }
        }
        if let Some(stretch) = stretch {
            qp.inbox.empty(stretch);
        }
        queue.free(fabric, wqe);
    }

    fn put_datagram(&self, fabric: &Fabric, pieces: &copy::Pieces, index: u32, carries: bool, wc: &Wc) {
        if wc.flags & wc_flags::GRH != 0 {
            let grh = std::ptr::from_ref(&self.extra(fabric, index).grh);
            // SAFETY: the memory of a posted receive, and a header.
            unsafe { copy::scatter(pieces.as_slice(), grh.cast(), GRH_BYTES as usize) };
        }
        if carries {
            let len = wc.byte_len - GRH_BYTES;
            let body = pieces.window(u64::from(GRH_BYTES), u64::from(len));
            // SAFETY: the memory of a posted receive, and so many bytes of a payload.
            unsafe { copy::scatter(body.as_slice(), self.data_at(fabric, index, len), len as usize) };
        }
    }
}
