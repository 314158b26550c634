// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completions with the adapter's timestamps: reads an extended completion queue, one by one. The same queue is polled
//! normally ([`super::CompletesWork::poll`]) while no tool wants timestamps. That is sound: an extended queue may be
//! passed to `ibv_poll_cq` (`ibv_cq_ex_to_cq`); in rdma-core's mlx4, mlx5, irdma and efa both ways take the same lock
//! and consumer index, and `ibv_start_poll` sets the rest anew. ibex never mixes them between a start and its end.
//! Path: hot while a tool wants stamps. One thread at a time (`&mut`). Tests: `hw-tests`.

use super::completion::{Start, WorkCompletion};
use crate::verbs::sys;
use std::io;

/// What is asked for of every completion.
pub(super) const FLAGS: u64 = (sys::IBV_WC_EX_WITH_BYTE_LEN
    | sys::IBV_WC_EX_WITH_IMM
    | sys::IBV_WC_EX_WITH_QP_NUM
    | sys::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) as u64;

type Queue = *mut sys::ibv_cq_ex;

#[derive(Debug, Clone, Copy)]
pub(super) struct Reader {
    start: unsafe extern "C" fn(Queue, *mut sys::ibv_poll_cq_attr) -> i32,
    next: unsafe extern "C" fn(Queue) -> i32,
    end: unsafe extern "C" fn(Queue),
    vendor_err: unsafe extern "C" fn(Queue) -> u32,
    byte_len: unsafe extern "C" fn(Queue) -> u32,
    imm_data: unsafe extern "C" fn(Queue) -> u32,
    qp_num: unsafe extern "C" fn(Queue) -> u32,
    wc_flags: unsafe extern "C" fn(Queue) -> u32,
    completion_ts: unsafe extern "C" fn(Queue) -> u64,
}

impl Reader {
    /// `None` where the provider left one out.
    ///
    /// # Safety
    /// The queue is live, and was made with [`FLAGS`].
    pub(super) unsafe fn new(queue: Queue) -> Option<Reader> {
        // SAFETY: the caller says that the queue is live; the provider sets these when it makes the queue.
        let queue = unsafe { &*queue };
        Some(Reader {
            start: queue.start_poll?,
            next: queue.next_poll?,
            end: queue.end_poll?,
            vendor_err: queue.read_vendor_err?,
            byte_len: queue.read_byte_len?,
            imm_data: queue.read_imm_data?,
            qp_num: queue.read_qp_num?,
            wc_flags: queue.read_wc_flags?,
            completion_ts: queue.read_completion_ts?,
        })
    }

    /// Takes as many completions as there are and fit, with the raw ticks at which each was made. Returns how many.
    ///
    /// # Safety
    /// The queue is live, the one that this reader was made of, and read by nobody else at the time.
    pub(super) unsafe fn read(
        &self,
        queue: Queue,
        completions: &mut [WorkCompletion],
        stamps: &mut [u64],
    ) -> io::Result<usize> {
        let mut nothing = sys::ibv_poll_cq_attr { comp_mask: 0 };
        // SAFETY: the caller says that the queue is live, this reader's, and read by nobody else.
        let mut code = unsafe { (self.start)(queue, &raw mut nothing) };
        if code == libc::ENOENT {
            return Ok(0);
        }
        if code != 0 {
            return Err(io::Error::from_raw_os_error(code.abs()));
        }
        let room = completions.len().min(stamps.len());
        let mut taken = 0;
        // One more step than what fits would lose a completion.
        while code == 0 && taken < room {
            // SAFETY: a completion is at hand: the start, or the last step, has said so.
            unsafe { self.take(queue, &mut completions[taken], &mut stamps[taken]) };
            taken += 1;
            if taken < room {
                // SAFETY: between start and end.
                code = unsafe { (self.next)(queue) };
            }
        }
        // SAFETY: once after a start that succeeded.
        unsafe { (self.end)(queue) };
        // What was taken before is good; a broken queue says so again.
        if code == 0 || code == libc::ENOENT || taken > 0 {
            Ok(taken)
        } else {
            Err(io::Error::from_raw_os_error(code.abs()))
        }
    }

    /// # Safety
    /// The queue is live, this reader's, and read by nobody else; between start and end.
    unsafe fn take(&self, queue: Queue, completion: &mut WorkCompletion, stamp: &mut u64) {
        // SAFETY: the two fields are written by start and next.
        let (wr_id, status) = unsafe { ((*queue).wr_id, (*queue).status) };
        // SAFETY: between start and end, as the caller says. A failed completion's other fields are undefined, unused.
        let (start, imm, qp_num, flags) = unsafe {
            let (vendor_err, byte_len) = ((self.vendor_err)(queue), (self.byte_len)(queue));
            let start = Start { wr_id, status, vendor_err, byte_len };
            *stamp = (self.completion_ts)(queue);
            (start, (self.imm_data)(queue), (self.qp_num)(queue), (self.wc_flags)(queue))
        };
        completion.set(&start, imm, qp_num, flags);
    }
}
