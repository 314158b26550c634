// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completions with the adapter's timestamps: reads an extended completion queue, one by one. The engine polls the same
//! queue normally ([`super::CompletesWork::poll`]) while no tool wants timestamps. That is sound: an extended queue may
//! be passed to `ibv_poll_cq` (`ibv_cq_ex_to_cq`); in rdma-core's mlx4, mlx5, irdma and efa both ways take the same
//! lock and consumer index, and `ibv_start_poll` sets the rest anew. ibex never mixes them between a start and its end.
//! Path: hot while a tool wants stamps. One thread at a time (`&mut`). Tests: `hw-tests`.

use super::completion::{Start, WorkCompletion};
use crate::verbs::{Status, sys};
use std::io;

/// The fields of every completion that ibex requests.
pub(super) const FLAGS: u64 = (sys::IBV_WC_EX_WITH_BYTE_LEN
    | sys::IBV_WC_EX_WITH_IMM
    | sys::IBV_WC_EX_WITH_QP_NUM
    | sys::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) as u64;

type Queue = *mut sys::ibv_cq_ex;

/// Calls a function of the queue, which [`can_read`] has found.
macro_rules! call {
    ($queue:ident.$function:ident($($argument:expr)?)) => {
        (*$queue).$function.unwrap_unchecked()($queue $(, $argument)?)
    };
}

/// Whether the provider has the functions that [`read`] calls.
///
/// # Safety
/// The queue is live.
pub(super) unsafe fn can_read(queue: Queue) -> bool {
    // SAFETY: the caller says that the queue is live; the provider sets these when it makes the queue.
    let queue = unsafe { &*queue };
    let polls = queue.start_poll.is_some() && queue.next_poll.is_some() && queue.end_poll.is_some();
    let fields = [queue.read_vendor_err, queue.read_byte_len, queue.read_imm_data, queue.read_qp_num];
    let others = queue.read_wc_flags.is_some() && queue.read_completion_ts.is_some();
    polls && fields.iter().all(Option::is_some) && others
}

/// Takes as many completions as there are and fit, with the raw timestamp of each. Returns how many.
///
/// # Safety
/// The queue is live, was made with [`FLAGS`], [`can_read`], and nobody else reads it at the time.
#[inline(always)]
pub(super) unsafe fn read(queue: Queue, completions: &mut [WorkCompletion], stamps: &mut [u64]) -> io::Result<usize> {
    let mut nothing = sys::ibv_poll_cq_attr { comp_mask: 0 };
    // SAFETY: the caller says that the queue is live and can be read, and that nobody else reads it.
    let code = unsafe { call!(queue.start_poll(&raw mut nothing)) };
    if code != 0 {
        return if code == libc::ENOENT { Ok(0) } else { Err(io::Error::from_raw_os_error(code.abs())) };
    }
    let mut taken = 0;
    let mut places = completions.iter_mut().zip(stamps);
    // A step beyond the room would lose a completion.
    while let Some((completion, stamp)) = places.next() {
        // SAFETY: a completion is at hand: the start, or the last step, has said so.
        unsafe { take(queue, completion, stamp) };
        taken += 1;
        if places.len() == 0 {
            break;
        }
        // SAFETY: between start and end.
        if unsafe { call!(queue.next_poll()) } != 0 {
            break;
        }
    }
    // SAFETY: once after a start that succeeded.
    unsafe { call!(queue.end_poll()) };
    // A broken queue reports its error again; the completions before it are valid.
    Ok(taken)
}

/// # Safety
/// As [`read`]; between start and end.
#[inline(always)]
unsafe fn take(queue: Queue, completion: &mut WorkCompletion, stamp: &mut u64) {
    // SAFETY: start and next write the two fields; between start and end, as the caller says. A failed completion's
    // other fields are undefined, unused.
    unsafe {
        let (wr_id, status) = ((*queue).wr_id, (*queue).status);
        let vendor_err = if status == Status::SUCCESS.0 { 0 } else { call!(queue.read_vendor_err()) };
        let byte_len = call!(queue.read_byte_len());
        completion.set_start(&Start { wr_id, status, vendor_err, byte_len });
        *stamp = call!(queue.read_completion_ts());
        completion.set_rest(call!(queue.read_imm_data()), call!(queue.read_qp_num()), call!(queue.read_wc_flags()));
    }
}
