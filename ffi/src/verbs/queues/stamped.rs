// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completions with the adapter's timestamps: reads an extended completion queue, one by one. The engine polls the same
//! queue normally ([`super::CompletesWork::poll`]) while no tool wants timestamps. That is sound: an extended queue may
//! be passed to `ibv_poll_cq` (`ibv_cq_ex_to_cq`); in rdma-core's mlx4, mlx5, irdma and efa both ways take the same
//! lock and consumer index, and `ibv_start_poll` sets the rest anew. ibex never mixes them between a start and its end.
//! Path: hot while a tool wants stamps. One thread at a time (`&mut`). Tests: `hw-tests`.

use super::completion::{Start, WorkCompletion};
use crate::verbs::sys;
use std::io;

/// The fields of every completion that ibex requests.
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
    /// `None` if the provider lacks one of these functions.
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

    /// Takes as many completions as there are and fit, with the raw timestamp of each. Returns how many.
    ///
    /// # Safety
    /// The queue is live, the one that this reader was made from, and nobody else reads it at the time.
    pub(super) unsafe fn read(
        &self,
        queue: Queue,
        completions: &mut [WorkCompletion],
        stamps: &mut [u64],
    ) -> io::Result<usize> {
        let mut nothing = sys::ibv_poll_cq_attr { comp_mask: 0 };
        // SAFETY: the caller says that the queue is live and this reader's, and that nobody else reads it.
        let mut code = unsafe { (self.start)(queue, &raw mut nothing) };
        if code == libc::ENOENT {
            return Ok(0);
        }
        if code != 0 {
            return Err(io::Error::from_raw_os_error(code.abs()));
        }
        let room = completions.len().min(stamps.len());
        let mut taken = 0;
        // A step beyond the room would lose a completion.
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
        // Completions before an error are valid; a broken queue reports it again.
        if code == 0 || code == libc::ENOENT || taken > 0 {
            Ok(taken)
        } else {
            Err(io::Error::from_raw_os_error(code.abs()))
        }
    }

    /// # Safety
    /// The queue is live and this reader's, and nobody else reads it; between start and end.
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
