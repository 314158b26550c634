// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_cq_ex`: the same completion queue, read by a cursor (`ibv_start_poll(3)` and the `ibv_wc_read_*` inlines, which
//! call the function pointers set here). `status` and `wr_id` are fields that the program reads directly. Grade: hot,
//! but for making it. Threads: from `start_poll` to `end_poll` the cursor belongs to one thread; others wait.

use std::ffi::{c_int, c_uint};

use super::object::{CompletionQueue, Plan, SoftCq, create};
use crate::behaviour::Behaviour;
use crate::engine::{CQ_TIMESTAMP_RAW, CQ_TIMESTAMP_WALL, Errno};
use crate::sys::{
    IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CQ_INIT_ATTR_MASK_PD, IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK, IBV_WC_EX_WITH_DLID_PATH_BITS,
    IBV_WC_STANDARD_FLAGS, ibv_context, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_create_cq_wc_flags, ibv_poll_cq_attr,
    ibv_wc_opcode,
};
use crate::verbs::context::SoftContext;
use crate::verbs::error::pointer;

/// What a completion can be asked for: all but what only raw packets and tag matching have, and what this adapter has
/// not.
fn wc_flags(ways: &Behaviour) -> u64 {
    let mut flags = IBV_WC_STANDARD_FLAGS;
    for (has, flag) in [
        (ways.timestamps, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP),
        (ways.timestamps && ways.wallclock, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK),
    ] {
        flags |= if has { flag } else { 0 };
    }
    if !ways.standard_wc_flags {
        flags &= !IBV_WC_EX_WITH_DLID_PATH_BITS;
    }
    u64::from(flags)
}

/// `ibv_create_cq_ex(3)`.
///
/// # Safety
/// `context` is open; `attr` is readable, its channel null or not destroyed.
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: the caller says that `attr` is readable.
    let attr = unsafe { &*attr };
    if attr.comp_mask & !(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD) != 0 || attr.cqe == 0 {
        return pointer(Err(Errno(libc::EINVAL)));
    }
    let flags = if attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 { attr.flags } else { 0 };
    // SAFETY: the context is open, by the caller's word.
    let accepted = unsafe { wc_flags(SoftContext::of(context).hca().behaviour()) };
    if attr.wc_flags & !accepted != 0 || flags & !IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0 {
        return pointer(Err(Errno(libc::EOPNOTSUPP)));
    }
    let asked = |flag: ibv_create_cq_wc_flags| attr.wc_flags & u64::from(flag) != 0;
    let raw = if asked(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) { CQ_TIMESTAMP_RAW } else { 0 };
    let wall = if asked(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) { CQ_TIMESTAMP_WALL } else { 0 };
    let plan = Plan {
        cqe: attr.cqe,
        user: attr.cq_context,
        channel: attr.channel,
        comp_vector: attr.comp_vector,
        timestamps: raw | wall,
        single_threaded: flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0,
    };
    // SAFETY: the caller says that `context` is open, and the channel null or not destroyed.
    pointer(unsafe { create(context, &plan) }.inspect(|cq| {
        // SAFETY: just made, and not yet known to the program.
        set_readers(unsafe { &mut **cq });
    }))
}

impl CompletionQueue {
    fn give_cursor(&self) {
        if !self.single_threaded {
            self.cursor.give();
        }
    }
}

/// Moves to the next completion: 0, or ENOENT if there is none.
unsafe fn advance(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the program gives a queue that is not destroyed, whose cursor is this thread's until end_poll.
    let (queue, at) = unsafe { (SoftCq::of(cq), SoftCq::of(cq).cursor.get()) };
    if queue.engine.poll(std::slice::from_mut(at)) == 0 {
        return libc::ENOENT;
    }
    // SAFETY: these two fields are written by the cursor's holder alone, and read by it.
    unsafe {
        (*cq).status = at.status as _;
        (*cq).wr_id = at.wr_id;
    }
    0
}

/// `ibv_start_poll(3)`: on success the caller holds the cursor until `end_poll`.
unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: the program gives null, or attributes that can be read.
    if !attr.is_null() && unsafe { (*attr).comp_mask } != 0 {
        return libc::EINVAL;
    }
    // SAFETY: the program gives a queue of this library that is not destroyed.
    let queue = unsafe { SoftCq::of(cq) };
    if !queue.single_threaded {
        queue.cursor.take();
    }
    // SAFETY: the cursor is this thread's.
    let result = unsafe { advance(cq) };
    if result != 0 {
        queue.give_cursor();
    }
    result
}

/// `ibv_next_poll`.
unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the program calls this between start_poll and end_poll.
    unsafe { advance(cq) }
}

/// `ibv_end_poll`.
unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: the program calls this once after a start_poll that succeeded.
    unsafe { SoftCq::of(cq) }.give_cursor();
}

/// The `ibv_wc_read_*` functions, each one field of the completion the cursor is at; and all that a queue is read by.
macro_rules! readers {
    ($($name:ident -> $type:ty = $field:ident;)*) => {
        fn set_readers(cq: &mut ibv_cq_ex) {
            cq.start_poll = Some(start_poll);
            cq.next_poll = Some(next_poll);
            cq.end_poll = Some(end_poll);
            $(cq.$name = Some($name);)*
        }

        $(unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $type {
            // SAFETY: the program calls this between start_poll and end_poll, so the cursor is its own.
            let at = unsafe { SoftCq::of(cq).cursor.get() };
            <$type>::from(at.$field)
        })*
    };
}

readers! {
    read_opcode -> ibv_wc_opcode = opcode;
    read_vendor_err -> u32 = vendor_err;
    read_byte_len -> u32 = byte_len;
    read_imm_data -> u32 = imm;
    read_qp_num -> u32 = qp_num;
    read_src_qp -> u32 = src_qp;
    read_wc_flags -> c_uint = flags;
    read_slid -> u32 = slid;
    read_sl -> u8 = sl;
    read_dlid_path_bits -> u8 = dlid_path_bits;
    read_completion_ts -> u64 = ts_raw;
    read_completion_wallclock_ns -> u64 = ts_wall;
}
