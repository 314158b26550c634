// SPDX-License-Identifier: MIT OR Apache-2.0
//! The function table of a module, in one place: what Open MPI calls, and the calls that concern the module alone.
//!
//! Only `component` uses it. What ob1, bml/r2 and osc/rdma read from a module's fields is filled in [`template`]
//! (before the user's settings, device-free) and `Module::new` (by what the port can). Grade: setup. Threads: any.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use ibex_ffi::openmpi::sys;

use super::endpoint::endpoint;
use super::module::{self, Module};
use super::{atomic, descriptor, detour, flush, procs, rdma, send};
use crate::runtime::guard::fence;
use crate::runtime::memory::{HANDLE_SIZE, Registered};
use crate::runtime::messages;

/// The largest message that is sent at once, header and all, bytes.
const EAGER_LIMIT: usize = 12 << 10;

/// The largest piece of a longer one, bytes.
const MAX_SEND_SIZE: usize = 32 << 10;

/// The first piece of ob1's pipeline of puts, and each put, bytes.
const PIPELINE_PIECE: usize = 1 << 20;

/// From how many bytes on ob1 may take to its pipeline, where the sender's memory cannot be registered: it tries for
/// ever where none at all can be (`pml_ob1_recvreq.c`, `mca_pml_ob1_recv_request_schedule_once`). So only messages that
/// are themselves too large for one registration go that way; the others are copied.
const PIPELINE_LIMIT: usize = 1 << 30;

/// A module's fields before anything is known of a port: functions, flags and limits that the user may then change.
pub(crate) fn template(component: *mut sys::mca_btl_base_component_t) -> sys::mca_btl_base_module_t {
    // SAFETY: a C structure of integers and (nullable) pointers, for which zero is a value.
    let mut base: sys::mca_btl_base_module_t = unsafe { std::mem::zeroed() };
    base.btl_component = component;
    base.btl_eager_limit = EAGER_LIMIT;
    base.btl_rndv_eager_limit = EAGER_LIMIT;
    base.btl_max_send_size = MAX_SEND_SIZE;
    base.btl_rdma_pipeline_send_length = PIPELINE_PIECE;
    base.btl_rdma_pipeline_frag_size = PIPELINE_PIECE;
    base.btl_min_rdma_pipeline_size = PIPELINE_LIMIT;
    // Below shared memory (65536), which keeps the peers of a host where it is in use; above TCP (100).
    base.btl_exclusivity = sys::MCA_BTL_EXCLUSIVITY_DEFAULT;
    // The port's own, where the user sets none.
    (base.btl_latency, base.btl_bandwidth) = (0, 0);
    base.btl_flags =
        sys::MCA_BTL_FLAGS_SEND | sys::MCA_BTL_FLAGS_PUT | sys::MCA_BTL_FLAGS_GET | sys::MCA_BTL_FLAGS_ATOMIC_FOPS;
    base.btl_atomic_flags = sys::MCA_BTL_ATOMIC_SUPPORTS_ADD | sys::MCA_BTL_ATOMIC_SUPPORTS_CSWAP;
    base.btl_registration_handle_size = HANDLE_SIZE;
    base.btl_add_procs = Some(procs::btl_add_procs);
    base.btl_del_procs = Some(procs::btl_del_procs);
    base.btl_finalize = Some(btl_finalize);
    base.btl_alloc = Some(descriptor::btl_alloc);
    base.btl_free = Some(descriptor::btl_free);
    base.btl_prepare_src = Some(descriptor::btl_prepare_src);
    base.btl_send = Some(send::btl_send);
    base.btl_sendi = Some(send::btl_sendi);
    base.btl_put = Some(rdma::btl_put);
    base.btl_get = Some(rdma::btl_get);
    base.btl_dump = Some(btl_dump);
    base.btl_atomic_fop = Some(atomic::btl_atomic_fop::<false>);
    base.btl_atomic_cswap = Some(atomic::btl_atomic_cswap::<false>);
    base.btl_register_mem = Some(btl_register_mem);
    base.btl_deregister_mem = Some(btl_deregister_mem);
    base.btl_register_error = Some(btl_register_error);
    base.btl_flush = Some(flush::btl_flush);
    // btl_register: bml/r2 fills mca_btl_base_active_message_trigger instead. btl_atomic_op: osc/rdma uses the fetching
    // one.
    base
}

/// `btl_register_error`.
unsafe extern "C" fn btl_register_error(
    btl: *mut sys::mca_btl_base_module_t,
    callback: sys::mca_btl_base_module_error_cb_fn_t,
) -> c_int {
    fence("btl_register_error", sys::OPAL_ERROR, || {
        // SAFETY: M1.
        let module = unsafe { Module::from_raw(btl) };
        module.set_error_callback(callback);
        sys::OPAL_SUCCESS
    })
}

/// `btl_dump`: how an endpoint stands, for a debugger's or a developer's eye.
unsafe extern "C" fn btl_dump(
    btl: *mut sys::mca_btl_base_module_t,
    peer: *mut sys::mca_btl_base_endpoint_t,
    _verbose: c_int,
) {
    fence("btl_dump", (), || {
        // SAFETY: M1.
        let module = unsafe { Module::from_raw(btl) };
        let Some(state) = module.enter() else { return };
        let text = if peer.is_null() { format!("{:?}", *state.port) } else { state.port.describe(endpoint(peer)) };
        drop(state);
        messages::verbose(&text);
    });
}

/// `btl_finalize`: ends the module, and the port unless another face uses it. Nothing of Open MPI's calls into the
/// module afterwards.
unsafe extern "C" fn btl_finalize(btl: *mut sys::mca_btl_base_module_t) -> c_int {
    fence("btl_finalize", sys::OPAL_ERROR, || {
        // SAFETY: M1, and this is Open MPI's last call for the module.
        drop(unsafe { module::remove(btl) });
        sys::OPAL_SUCCESS
    })
}

/// `btl_register_mem`.
pub(crate) unsafe extern "C" fn btl_register_mem(
    btl: *mut sys::mca_btl_base_module_t,
    peer: *mut sys::mca_btl_base_endpoint_t,
    base: *mut c_void,
    size: usize,
    flags: u32,
) -> *mut sys::mca_btl_base_registration_handle_t {
    fence("btl_register_mem", null_mut(), || {
        // SAFETY: M1.
        let module = unsafe { Module::from_raw(btl) };
        // Messages to be read through this port are not announced while it is to be left alone, or may turn out to
        // reach no port of the peer; ob1 takes another one, or sends the data itself.
        let is_away = module.is_detouring() && detour::is_away(module, endpoint(peer));
        if is_away || module::are_several() && detour::is_unproven(module, endpoint(peer)) {
            return null_mut();
        }
        // SAFETY: M3: until btl_deregister_mem.
        let registered = unsafe { module.memory().register(base, size, flags & sys::MCA_BTL_REG_FLAG_ACCESS_ANY) };
        registered.map_or(null_mut(), |registered| registered.handle().as_ptr().cast())
    })
}

/// `btl_deregister_mem`.
pub(crate) unsafe extern "C" fn btl_deregister_mem(
    btl: *mut sys::mca_btl_base_module_t,
    handle: *mut sys::mca_btl_base_registration_handle_t,
) -> c_int {
    fence("btl_deregister_mem", sys::OPAL_ERROR, || {
        // SAFETY: M1.
        let module = unsafe { Module::from_raw(btl) };
        // SAFETY: null, or what `btl_register_mem` gave out and Open MPI gives back once.
        let Some(registered) = (unsafe { Registered::from_handle(handle.cast()) }) else {
            return sys::OPAL_ERR_BAD_PARAM;
        };
        // SAFETY: Open MPI gives it back when what named it has completed (R3).
        unsafe { module.memory().put_back(registered) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btl::module::FLAGS;
    use crate::runtime::memory::HANDLE_SIZE;

    #[test]
    fn the_template_has_what_a_btl_must_have_and_leaves_out_what_ibex_does_without() {
        let base = template(std::ptr::null_mut());
        assert!(base.btl_add_procs.is_some() && base.btl_send.is_some() && base.btl_prepare_src.is_some());
        assert!(base.btl_flush.is_some() && base.btl_atomic_op.is_none() && base.btl_register.is_none());
        assert_eq!(base.btl_flags & !FLAGS, 0);
        assert_eq!(base.btl_flags & sys::MCA_BTL_FLAGS_SEND_INPLACE, 0);
    }

    #[test]
    fn a_handle_fits_where_open_mpi_keeps_it() {
        assert!(HANDLE_SIZE <= sys::MCA_BTL_REG_HANDLE_MAX_SIZE as usize);
    }
}
