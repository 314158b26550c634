// SPDX-License-Identifier: MIT OR Apache-2.0
//! The function table of a module, and the functions that concern the module alone. [`template`] (before the user's
//! settings, without a device) and `Module::new` (by the capabilities of the port) fill in the fields of a module that
//! ob1, bml/r2 and osc/rdma read. Called by `component`. Grade: setup. Threads: any. Tests: `hw-tests`.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use ibex_ffi::openmpi::sys;

use super::endpoint::endpoint;
use super::module::{self, Module};
use super::one_sided::{atomic, flush, rdma};
use super::procs;
use super::two_sided::{descriptor, detour, send};
use crate::runtime::entry::{entry1, entry2, entry3, entry4, entry5, entry7, entry10, entry12, entry13};
use crate::runtime::guard::fence;
use crate::runtime::memory::{HANDLE_SIZE, Registered};
use crate::runtime::messages;

/// Size in bytes of the largest eager message, including its header.
const EAGER_LIMIT: usize = 12 << 10;

/// Size in bytes of the largest fragment of a longer message.
const MAX_SEND_SIZE: usize = 32 << 10;

/// Size in bytes of the first fragment in ob1's pipeline of puts, and of each put.
const PIPELINE_PIECE: usize = 1 << 20;

/// Size in bytes from which ob1 may use its pipeline if the sender's memory cannot be registered. If no fragment can be
/// registered, ob1 retries for ever (`pml_ob1_recvreq.c`, `mca_pml_ob1_recv_request_schedule_once`). So only messages
/// that are too large for one registration use the pipeline; all others are copied.
const PIPELINE_LIMIT: usize = 1 << 30;

/// Returns the fields of a module before its port is known: functions, flags, and limits that the user may change.
pub(crate) fn template(component: *mut sys::mca_btl_base_component_t) -> sys::mca_btl_base_module_t {
    // SAFETY: zero is a valid value of this C structure of integers and nullable pointers.
    let mut base: sys::mca_btl_base_module_t = unsafe { std::mem::zeroed() };
    base.btl_component = component;
    base.btl_eager_limit = EAGER_LIMIT;
    base.btl_rndv_eager_limit = EAGER_LIMIT;
    base.btl_max_send_size = MAX_SEND_SIZE;
    base.btl_rdma_pipeline_send_length = PIPELINE_PIECE;
    base.btl_rdma_pipeline_frag_size = PIPELINE_PIECE;
    base.btl_min_rdma_pipeline_size = PIPELINE_LIMIT;
    // Less than shared memory (65536), which thus keeps the peers of a host; more than TCP (100).
    base.btl_exclusivity = sys::MCA_BTL_EXCLUSIVITY_DEFAULT;
    // 0: the component takes the port's values, unless the user sets others.
    (base.btl_latency, base.btl_bandwidth) = (0, 0);
    base.btl_flags =
        sys::MCA_BTL_FLAGS_SEND | sys::MCA_BTL_FLAGS_PUT | sys::MCA_BTL_FLAGS_GET | sys::MCA_BTL_FLAGS_ATOMIC_FOPS;
    base.btl_atomic_flags = sys::MCA_BTL_ATOMIC_SUPPORTS_ADD | sys::MCA_BTL_ATOMIC_SUPPORTS_CSWAP;
    base.btl_registration_handle_size = HANDLE_SIZE;
    base.btl_add_procs = Some(entry5(procs::btl_add_procs));
    base.btl_del_procs = Some(entry4(procs::btl_del_procs));
    base.btl_finalize = Some(entry1(btl_finalize));
    base.btl_alloc = Some(entry5(descriptor::btl_alloc));
    base.btl_free = Some(entry2(descriptor::btl_free));
    base.btl_prepare_src = Some(entry7(descriptor::btl_prepare_src));
    base.btl_send = Some(entry4(send::btl_send));
    base.btl_sendi = Some(entry10(send::btl_sendi::<false>));
    base.btl_put = Some(entry12(rdma::btl_put));
    base.btl_get = Some(entry12(rdma::btl_get));
    base.btl_dump = Some(entry3(btl_dump));
    base.btl_atomic_fop = Some(entry13(atomic::btl_atomic_fop::<false>));
    base.btl_atomic_cswap = Some(entry13(atomic::btl_atomic_cswap::<false>));
    base.btl_register_mem = Some(entry5(btl_register_mem));
    base.btl_deregister_mem = Some(entry2(btl_deregister_mem));
    base.btl_register_error = Some(entry2(btl_register_error));
    base.btl_flush = Some(entry2(flush::btl_flush));
    // btl_register is empty: bml/r2 fills mca_btl_base_active_message_trigger. So is btl_atomic_op: osc/rdma uses fop.
    base
}

extern "C" fn btl_register_error(module: &Module, callback: sys::mca_btl_base_module_error_cb_fn_t) -> c_int {
    fence("btl_register_error", sys::OPAL_ERROR, || {
        module.set_error_callback(callback);
        sys::OPAL_SUCCESS
    })
}

extern "C" fn btl_dump(module: &Module, peer: *mut sys::mca_btl_base_endpoint_t, _verbose: c_int) {
    fence("btl_dump", (), || {
        let Some(state) = module.enter() else { return };
        let text = if peer.is_null() { format!("{:?}", *state.port) } else { state.port.describe(endpoint(peer)) };
        drop(state);
        messages::verbose(&text);
    });
}

/// `btl_finalize`: ends the module, and its port unless the PML uses it. Open MPI does not call the module afterwards.
/// Nothing polls its port any more: the PML is finalized before the framework bml is closed, and only that leads here
/// (`mca_btl_base_close`).
extern "C" fn btl_finalize(module: Box<Module>) -> c_int {
    fence("btl_finalize", sys::OPAL_ERROR, || {
        module::remove(module);
        sys::OPAL_SUCCESS
    })
}

/// # Safety
/// M3: the memory is the user's until `btl_deregister_mem`.
pub(crate) unsafe extern "C" fn btl_register_mem(
    module: &Module,
    peer: *mut sys::mca_btl_base_endpoint_t,
    base: *mut c_void,
    size: usize,
    flags: u32,
) -> *mut sys::mca_btl_base_registration_handle_t {
    fence("btl_register_mem", null_mut(), || {
        // While this port is diverted, or may reach no port of the peer, ob1 must not announce a message that the peer
        // would read through it. Without a registration ob1 takes another port, or sends the data itself.
        let is_away = module.is_detouring() && detour::is_away(module, endpoint(peer));
        if is_away || module::are_several() && detour::is_unproven(module, endpoint(peer)) {
            return null_mut();
        }
        // SAFETY: M3, as the caller says.
        let registered = unsafe { module.memory().register(base, size, flags & sys::MCA_BTL_REG_FLAG_ACCESS_ANY) };
        registered.map_or(null_mut(), |registered| registered.handle().cast())
    })
}

/// # Safety
/// The handle is null, or from `btl_register_mem` of this module, and given back once. R3: the operations that named it
/// have completed.
pub(crate) unsafe extern "C" fn btl_deregister_mem(
    module: &Module,
    handle: *mut sys::mca_btl_base_registration_handle_t,
) -> c_int {
    fence("btl_deregister_mem", sys::OPAL_ERROR, || {
        // SAFETY: null, or from `btl_register_mem`, as the caller says.
        let Some(registered) = (unsafe { Registered::from_handle(handle.cast()) }) else {
            return sys::OPAL_ERR_BAD_PARAM;
        };
        // SAFETY: R3, as the caller says.
        unsafe { module.memory().put_back(registered) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btl::module::FLAGS;

    #[test]
    fn the_template_has_the_functions_that_a_btl_must_have_and_lacks_those_that_ibex_does_not_need() {
        let base = template(std::ptr::null_mut());
        assert!(base.btl_add_procs.is_some() && base.btl_send.is_some() && base.btl_prepare_src.is_some());
        assert!(base.btl_flush.is_some() && base.btl_atomic_op.is_none() && base.btl_register.is_none());
        assert_eq!(base.btl_flags & !FLAGS, 0);
        assert_eq!(base.btl_flags & sys::MCA_BTL_FLAGS_SEND_INPLACE, 0);
    }

    #[test]
    fn a_handle_has_eight_bytes_and_fits_where_open_mpi_keeps_it() {
        assert!(HANDLE_SIZE == 8 && HANDLE_SIZE <= sys::MCA_BTL_REG_HANDLE_MAX_SIZE as usize);
    }
}
