// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_cq`: completion queues, polled the plain way. Every queue has room for the extended interface (`cq_ex`), whose
//! structure begins with this one's. Grade: `poll_cq` and `req_notify_cq` are hot: no allocation, no lock but the
//! engine's. The rest is setup. Threads: any.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

use super::channel::{SoftChannel, count_user};
use crate::behaviour::ByteLen;
use crate::engine::codes::wc_status;
use crate::engine::{CQ_TIMESTAMP_RAW, CQ_TIMESTAMP_WALL, Cq, Errno, Result, Wc};
use crate::sys::{IBV_WC_RECV, ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_wc};
use crate::verbs::context::SoftContext;
use crate::verbs::error::{number, pointer};
use crate::verbs::handle::Handle;
use crate::verbs::registry;
use crate::verbs::turn::Turn;

/// A completion queue as programs hold it, who may use it by the extended interface.
pub(crate) type SoftCq = Handle<ibv_cq_ex, CompletionQueue>;

/// What is behind it.
pub(crate) struct CompletionQueue {
    pub(crate) engine: Cq,
    /// The completion at which the extended interface is.
    pub(super) cursor: Turn<Wc>,
    /// The program promises that one thread reads by the extended interface: there are no turns.
    pub(super) single_threaded: bool,
    /// By which events name it.
    pub(crate) number: u64,
    channel: *mut ibv_comp_channel,
    /// Polling leaves `byte_len` and `vendor_err` of sends that succeeded as the program had them.
    leaves_lengths: bool,
}

// The engine gives a completion in the layout of an ibv_wc, and its own fields after it.
const _: () = assert!(size_of::<ibv_wc>() == 48 && std::mem::offset_of!(Wc, ts_raw) == 48);
const _: () = assert!(std::mem::offset_of!(ibv_wc, dlid_path_bits) == std::mem::offset_of!(Wc, dlid_path_bits));

/// How a queue is to be made, from either interface.
pub(super) struct Plan {
    pub(super) cqe: u32,
    pub(super) user: *mut c_void,
    pub(super) channel: *mut ibv_comp_channel,
    pub(super) comp_vector: u32,
    pub(super) timestamps: u32,
    pub(super) single_threaded: bool,
}

/// Makes a queue.
///
/// # Safety
/// `context` is open; the plan's channel is null or not destroyed.
pub(super) unsafe fn create(context: *mut ibv_context, plan: &Plan) -> Result<*mut ibv_cq_ex> {
    // SAFETY: the caller says that `context` is open, and the channel null or not destroyed.
    let (opened, channel) = unsafe {
        (SoftContext::of(context), if plan.channel.is_null() { None } else { Some(SoftChannel::of(plan.channel)) })
    };
    // SAFETY: the caller says that `context` is open.
    if plan.comp_vector >= unsafe { (*context).num_comp_vectors } as u32 {
        return Err(Errno(libc::EINVAL));
    }
    debug_assert_eq!(plan.timestamps & !(CQ_TIMESTAMP_RAW | CQ_TIMESTAMP_WALL), 0);
    let number = registry::reserve();
    let engine = opened.hca().create_cq(plan.cqe, channel, number, plan.timestamps)?;
    let public = ibv_cq_ex {
        context,
        channel: plan.channel,
        cq_context: plan.user,
        cqe: engine.cqe() as c_int,
        ..ibv_cq_ex::default()
    };
    let behind = CompletionQueue {
        engine,
        cursor: Turn::default(),
        single_threaded: plan.single_threaded,
        number,
        channel: plan.channel,
        leaves_lengths: opened.hca().behaviour().success_byte_len_on_send == ByteLen::Untouched,
    };
    let cq = SoftCq::hand_out(public, behind);
    registry::enter(number, cq);
    if !plan.channel.is_null() {
        // SAFETY: the caller says that the channel is not destroyed.
        unsafe { count_user(plan.channel, 1) };
    }
    Ok(cq)
}

/// `ibv_create_cq(3)`.
///
/// # Safety
/// `context` is open; `channel` is null or not destroyed.
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
    let plan = Plan {
        cqe: cqe as u32,
        user: cq_context,
        channel,
        comp_vector: comp_vector as u32,
        timestamps: 0,
        single_threaded: false,
    };
    // SAFETY: the caller says that `context` is open, and `channel` null or not destroyed.
    pointer(unsafe { create(context, &plan) }.map(<*mut ibv_cq_ex>::cast))
}

/// `ibv_resize_cq(3)`.
///
/// # Safety
/// `cq` is not destroyed.
pub(crate) unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    if cqe < 1 {
        return number(Err(Errno(libc::EINVAL)));
    }
    // SAFETY: the caller says that `cq` is not destroyed; an aligned field of it; several may resize it at once.
    let (engine, size) = unsafe { (&SoftCq::of(cq.cast()).engine, AtomicI32::from_ptr(&raw mut (*cq).cqe)) };
    let result = engine.resize(cqe as u32);
    size.store(engine.cqe() as c_int, Ordering::Relaxed);
    number(result)
}

/// `ibv_destroy_cq(3)`: EBUSY while a queue pair uses it; waits until its events are acknowledged.
///
/// # Safety
/// `cq` is not destroyed, and given up if this succeeds.
pub(crate) unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    let end = |queue: &CompletionQueue| {
        queue.engine.destroy()?;
        registry::retire(queue.number);
        if !queue.channel.is_null() {
            // SAFETY: a channel cannot be destroyed while a queue uses it.
            unsafe { count_user(queue.channel, -1) };
        }
        Ok(())
    };
    // SAFETY: the caller says that `cq` is not destroyed, and given up if this succeeds; no event names it any more.
    unsafe { SoftCq::end(cq.cast(), end) }
}

/// `ibv_poll_cq(3)`: the number of completions written.
///
/// # Safety
/// `cq` is not destroyed; `wc` is writable for `entries` completions.
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller says that `cq` is not destroyed.
    let queue = unsafe { SoftCq::of(cq.cast()) };
    let taken = queue.engine.poll_each(entries.max(0) as usize, |index, completion| {
        // SAFETY: `index` stays below `entries`; a Wc starts with an ibv_wc (asserted above).
        unsafe {
            let mut told = std::ptr::from_ref(completion).cast::<ibv_wc>().read();
            if queue.leaves_lengths && completion.status == wc_status::SUCCESS && told.opcode < IBV_WC_RECV {
                // The program may have never written these: they are bytes of its, whatever they say.
                let before = wc.add(index);
                told.byte_len = (&raw const (*before).byte_len).read();
                told.vendor_err = (&raw const (*before).vendor_err).read();
            }
            wc.add(index).write(told);
        }
    });
    taken as c_int
}

/// `ibv_req_notify_cq(3)`.
///
/// # Safety
/// `cq` is not destroyed.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the caller says that `cq` is not destroyed.
    unsafe { SoftCq::of(cq.cast()) }.engine.arm(solicited_only != 0);
    0
}
