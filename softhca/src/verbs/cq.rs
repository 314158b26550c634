// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_cq`: completion queues, polled the plain way; and `ibv_cq_ex`: the same queue, read by a cursor
//! (`ibv_start_poll(3)` and the `ibv_wc_read_*` inlines, which call the function pointers set here). Every queue has
//! room for the extended structure, which begins with the plain one; the program reads its `status` and `wr_id`
//! directly. Grade: reading and `req_notify_cq` are hot: no allocation, no lock but the engine's; the rest is setup.
//! Threads: any; from `start_poll` to `end_poll` the cursor belongs to one thread, and others wait.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

use crate::behaviour::{Behaviour, ByteLen};
use crate::engine::codes::wc_status;
use crate::engine::{Cq, Errno, Result, Wc};
use crate::sys::{
    IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CQ_INIT_ATTR_MASK_PD, IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK, IBV_WC_EX_WITH_DLID_PATH_BITS,
    IBV_WC_RECV, IBV_WC_STANDARD_FLAGS, ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex,
    ibv_poll_cq_attr, ibv_wc, ibv_wc_opcode,
};
use crate::verbs::events::count_user;
use crate::verbs::{Handle, SoftChannel, Turn, adapter, events, number, pointer};

pub(crate) type SoftCq = Handle<ibv_cq_ex, CompletionQueue>;

pub(crate) struct CompletionQueue {
    pub(crate) engine: Cq,
    /// The present completion of the extended interface.
    cursor: Turn<Wc>,
    /// The program promises that one thread reads by the extended interface, so there are no turns.
    single_threaded: bool,
    pub(crate) number: u64,
    channel: *mut ibv_comp_channel,
    /// Polling leaves `byte_len` and `vendor_err` of sends that succeeded as the program had them.
    leaves_lengths: bool,
}

// The engine gives a completion in the layout of an ibv_wc, and its own fields after it.
const _: () = assert!(size_of::<ibv_wc>() == 48 && std::mem::offset_of!(Wc, ts_raw) == 48);
const _: () = assert!(std::mem::offset_of!(ibv_wc, dlid_path_bits) == std::mem::offset_of!(Wc, dlid_path_bits));

/// Makes a queue for either interface.
/// # Safety
/// `context` is open; the channel that `attr` names is null or not destroyed.
unsafe fn create(context: *mut ibv_context, attr: &ibv_cq_init_attr_ex) -> Result<*mut ibv_cq_ex> {
    // SAFETY: the caller says that `context` is open, and the channel null or not destroyed.
    let (hca, vectors, channel) = unsafe {
        let channel = if attr.channel.is_null() { None } else { Some(SoftChannel::of(attr.channel)) };
        (adapter(context), (*context).num_comp_vectors, channel)
    };
    if attr.comp_vector >= vectors as u32 {
        return Err(Errno(libc::EINVAL));
    }
    let number = events::reserve();
    let engine = hca.create_cq(attr.cqe, channel, number, attr.wc_flags as u32)?;
    let public = ibv_cq_ex {
        context,
        channel: attr.channel,
        cq_context: attr.cq_context,
        cqe: engine.cqe() as c_int,
        ..ibv_cq_ex::default()
    };
    let behind = CompletionQueue {
        engine,
        cursor: Turn::default(),
        single_threaded: attr.flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0,
        number,
        channel: attr.channel,
        leaves_lengths: hca.behaviour().success_byte_len_on_send == ByteLen::Untouched,
    };
    let cq = SoftCq::hand_out(public, behind);
    events::enter(number, cq);
    if !attr.channel.is_null() {
        // SAFETY: the caller says that the channel is not destroyed.
        unsafe { count_user(attr.channel, 1) };
    }
    Ok(cq)
}

pub(crate) unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    if cqe < 1 || comp_vector < 0 {
        return pointer(Err(Errno(libc::EINVAL)));
    }
    let (cqe, comp_vector) = (cqe as u32, comp_vector as u32);
    let attr = ibv_cq_init_attr_ex { cqe, cq_context, channel, comp_vector, ..ibv_cq_init_attr_ex::default() };
    // SAFETY: `context` is open, and `channel` null or not destroyed (rule V).
    pointer(unsafe { create(context, &attr) }.map(<*mut ibv_cq_ex>::cast))
}

pub(crate) unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    if cqe < 1 {
        return number(Err(Errno(libc::EINVAL)));
    }
    // SAFETY: `cq` is not destroyed; an aligned field of it; several may resize it at once (rule V).
    let (engine, size) = unsafe { (&SoftCq::of(cq.cast()).engine, AtomicI32::from_ptr(&raw mut (*cq).cqe)) };
    let result = engine.resize(cqe as u32);
    size.store(engine.cqe() as c_int, Ordering::Relaxed);
    number(result)
}

/// `ibv_destroy_cq(3)`: EBUSY while a queue pair uses it; waits until its events are acknowledged.
pub(crate) unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    let end = |queue: &CompletionQueue| {
        queue.engine.destroy()?;
        events::retire(queue.number);
        if !queue.channel.is_null() {
            // SAFETY: a channel cannot be destroyed while a queue uses it.
            unsafe { count_user(queue.channel, -1) };
        }
        Ok(())
    };
    // SAFETY: `cq` is not destroyed, and given up if this succeeds; no event names it any more (rule V).
    unsafe { SoftCq::end(cq.cast(), end) }
}

pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: `cq` is not destroyed (rule V).
    let queue = unsafe { SoftCq::of(cq.cast()) };
    let taken = queue.engine.poll_each(entries.max(0) as usize, |index, completion| {
        // SAFETY: `index` stays below `entries`; a Wc starts with an ibv_wc (asserted above).
        unsafe {
            let mut told = std::ptr::from_ref(completion).cast::<ibv_wc>().read();
            if queue.leaves_lengths && completion.status == wc_status::SUCCESS && told.opcode < IBV_WC_RECV {
                // The program may never have written these: they stay its bytes, with any value.
                let before = wc.add(index);
                told.byte_len = (&raw const (*before).byte_len).read();
                told.vendor_err = (&raw const (*before).vendor_err).read();
            }
            wc.add(index).write(told);
        }
    });
    taken as c_int
}

pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: `cq` is not destroyed (rule V).
    unsafe { SoftCq::of(cq.cast()) }.engine.arm(solicited_only != 0);
    0
}

/// Returns the flags of completions that this adapter has; none has those of raw packets and tag matching.
fn wc_flags(ways: &Behaviour) -> u64 {
    let mut flags = IBV_WC_STANDARD_FLAGS;
    if ways.timestamps {
        flags |= IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
        flags |= if ways.wallclock { IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK } else { 0 };
    }
    if !ways.standard_wc_flags {
        flags &= !IBV_WC_EX_WITH_DLID_PATH_BITS;
    }
    u64::from(flags)
}

pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: `attr` is readable (rule V).
    let attr = unsafe { &*attr };
    if attr.comp_mask & !(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD) != 0 || attr.cqe == 0 {
        return pointer(Err(Errno(libc::EINVAL)));
    }
    let flags = if attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 { attr.flags } else { 0 };
    // SAFETY: the context is open (rule V).
    let accepted = unsafe { wc_flags(adapter(context).behaviour()) };
    if attr.wc_flags & !accepted != 0 || flags & !IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0 {
        return pointer(Err(Errno(libc::EOPNOTSUPP)));
    }
    let ibv_cq_init_attr_ex { cqe, cq_context, channel, comp_vector, wc_flags, .. } = *attr;
    let known = ibv_cq_init_attr_ex { cqe, cq_context, channel, comp_vector, wc_flags, flags, ..Default::default() };
    // SAFETY: `context` is open, and the channel null or not destroyed (rule V).
    pointer(unsafe { create(context, &known) }.inspect(|cq| {
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
unsafe extern "C" fn advance(cq: *mut ibv_cq_ex) -> c_int {
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

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: the program calls this once after a start_poll that succeeded.
    unsafe { SoftCq::of(cq) }.give_cursor();
}

/// Defines the `ibv_wc_read_*` functions, each for one field of the cursor's completion, and a function that sets them.
macro_rules! readers {
    ($($name:ident -> $type:ty = $field:ident;)*) => {
        fn set_readers(cq: &mut ibv_cq_ex) {
            cq.start_poll = Some(start_poll);
            cq.next_poll = Some(advance);
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
