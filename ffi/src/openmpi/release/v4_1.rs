// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open MPI 4.1, from 4.1.0 on: BTL 3.1.0 and PML 2.0.0. See `release` for what this file is; `v5_0.rs` is its
//! counterpart, with the same items.

use std::ffi::{c_char, c_void};

use super::Receiver;
use crate::openmpi::sys;

/// The release series.
pub const SERIES: &str = "4.1";

/// The version of the BTL interface, hundreds, tens and ones: 3.1.0.
pub const BTL_VERSION: u32 = 310;

/// The same of the PML interface: 2.0.0, which no header says as a number.
pub const PML_VERSION: u32 = 200;

/// The flag of a BTL whose puts are done at the peer when they are reported done: 4.1 has none, and takes it for granted.
pub const REMOTE_COMPLETION: u32 = 0;

/// Whether osc/rdma does the atomics of a BTL that has none by messages of its own.
pub const ATOMICS_BY_MESSAGES: bool = false;

const _: () = assert!(sys::BTL_VERSION == BTL_VERSION, "btl.h has the interface that this file is for");

/// The number that messages in a communicator carry, the same for all its members.
///
/// # Safety
/// A communicator that Open MPI has filled in.
#[inline]
#[must_use]
pub unsafe fn context(comm: *const sys::ompi_communicator_t) -> u32 {
    // SAFETY: the caller says that Open MPI has filled it in.
    unsafe { (*comm).c_contextid }
}

/// A communicator in which nothing is set but its number: for tests.
#[must_use]
pub fn blank_communicator(number: u32) -> sys::ompi_communicator_t {
    // SAFETY: a C structure of integers and (nullable) pointers, for which zero is a value.
    let mut comm: sys::ompi_communicator_t = unsafe { std::mem::zeroed() };
    comm.c_contextid = number;
    comm
}

/// What the PML's table says of it: nothing.
pub const PML_FLAGS: i32 = 0;

/// The name of a process' host; null where it is not known. The text is Open MPI's.
///
/// # Safety
/// A live process of Open MPI's.
pub(in crate::openmpi) unsafe fn host_name(process: *const sys::opal_proc_t) -> *const c_char {
    // SAFETY: the caller says that it is a live process of Open MPI's.
    unsafe { sys::opal_get_proc_hostname(process) }
}

/// Whether the job is started with fault tolerance: never in 4.1.
#[must_use]
pub fn is_fault_tolerant() -> bool {
    false
}

/// What a callback is shown of a received message.
pub(super) type Received = sys::mca_btl_base_descriptor_t;

/// Calls what is registered for a tag, if anything is, with a received message. `sender` is asked for the endpoint that it
/// came from where a callback is told of that.
///
/// # Safety
/// A callback of Open MPI's table, a module that it knows, and a message that stays as it is until this returns.
#[inline]
pub(super) unsafe fn call(
    callback: sys::mca_btl_active_message_callback_t,
    (btl, tag): (*mut sys::mca_btl_base_module_t, u8),
    received: *mut Received,
    _sender: impl FnOnce() -> *mut sys::mca_btl_base_endpoint_t,
) {
    let Some(function) = callback.cbfunc else { return };
    // SAFETY: the caller gives a callback of Open MPI's table; it reads the descriptor within this call only (btl.h).
    unsafe { function(btl, tag, received, callback.cbdata) };
}

/// The function that Open MPI calls with messages for `R`.
#[must_use]
pub fn received_by<R: Receiver>() -> sys::mca_btl_base_module_recv_cb_fn_t {
    unsafe extern "C" fn received<R: Receiver>(
        btl: *mut sys::mca_btl_base_module_t,
        tag: u8,
        descriptor: *mut sys::mca_btl_base_descriptor_t,
        _context: *mut c_void,
    ) {
        // SAFETY: the BTL's descriptor, for the call.
        let (segments, count) = unsafe { ((*descriptor).des_segments, (*descriptor).des_segment_count) };
        // SAFETY: Open MPI calls this with a BTL that is open, and segments that it has received.
        unsafe { R::received(btl, tag, segments, count) };
    }
    Some(received::<R>)
}
