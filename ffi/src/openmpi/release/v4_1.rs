// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open MPI 4.1, from 4.1.0 on: BTL 3.1.0, PML 2.0.0. `release` explains this file. Same items as in `v5_0.rs`.

use std::ffi::{c_char, c_void};

use super::Receiver;
use crate::openmpi::sys;

/// The release series.
pub const SERIES: &str = "4.1";

/// Version of the BTL interface, as the decimal digits of 3.1.0.
pub const BTL_VERSION: u32 = 310;

/// Version of the PML interface, as the decimal digits of 2.0.0. No header defines it as a number.
pub const PML_VERSION: u32 = 200;

/// Flag of a BTL whose puts are complete at the peer when their completion is reported. 4.1 assumes this of every BTL.
pub const REMOTE_COMPLETION: u32 = 0;

/// Whether osc/rdma performs the atomics of a BTL without atomics by messages of its own.
pub const ATOMICS_BY_MESSAGES: bool = false;

/// Size in bytes of ob1's largest header, a PUT with a registration handle of ibex: the smallest first fragment.
pub const LARGEST_OB1_HEADER: usize = 64;

const _: () = assert!(sys::BTL_VERSION == BTL_VERSION, "btl.h has the interface that this file is for");

/// Returns the number that a communicator's messages carry. It is the same for all members.
///
/// # Safety
/// `comm` is a live communicator whose number is set.
#[inline]
pub unsafe fn context(comm: *const sys::ompi_communicator_t) -> u32 {
    // SAFETY: `comm` is live, as this function requires.
    unsafe { (*comm).c_contextid }
}

/// Makes a communicator in which only its number is set, for tests.
pub fn blank_communicator(number: u32) -> sys::ompi_communicator_t {
    // SAFETY: a C structure of integers and (nullable) pointers, for which zero is a value.
    let mut comm: sys::ompi_communicator_t = unsafe { std::mem::zeroed() };
    comm.c_contextid = number;
    comm
}

/// Flags in the PML's module table: none.
pub const PML_FLAGS: i32 = 0;

/// Returns the name of a process' host; null if it is unknown. Open MPI owns the text.
///
/// # Safety
/// `process` is a live process record of Open MPI.
pub(in crate::openmpi) unsafe fn host_name(process: *const sys::opal_proc_t) -> *const c_char {
    // SAFETY: `process` is live, as this function requires.
    unsafe { sys::opal_get_proc_hostname(process) }
}

pub(super) type Received = sys::mca_btl_base_descriptor_t;

/// Calls the callback of a tag, if one is registered, with a received message. 4.1 does not pass the sender.
///
/// # Safety
/// The callback is from the table of Open MPI, which knows the module; the message does not change during the call.
#[inline]
pub(super) unsafe fn call(
    callback: sys::mca_btl_active_message_callback_t,
    (btl, tag): (*mut sys::mca_btl_base_module_t, u8),
    received: *mut Received,
    _sender: impl FnOnce() -> *mut sys::mca_btl_base_endpoint_t,
) {
    let Some(function) = callback.cbfunc else { return };
    // SAFETY: the callback is from Open MPI's table, and reads the descriptor only during this call (btl.h).
    unsafe { function(btl, tag, received, callback.cbdata) };
}

/// Returns the function that Open MPI calls with messages for `R`.
pub fn received_by<R: Receiver>() -> sys::mca_btl_base_module_recv_cb_fn_t {
    unsafe extern "C" fn received<R: Receiver>(
        btl: *mut sys::mca_btl_base_module_t,
        tag: u8,
        descriptor: *mut sys::mca_btl_base_descriptor_t,
        _context: *mut c_void,
    ) {
        // SAFETY: the BTL's descriptor is valid during the call (btl.h).
        let (segments, count) = unsafe { ((*descriptor).des_segments, (*descriptor).des_segment_count) };
        // SAFETY: Open MPI calls this with an open BTL and the segments of a received message.
        unsafe { R::received(btl, tag, segments, count) };
    }
    Some(received::<R>)
}
