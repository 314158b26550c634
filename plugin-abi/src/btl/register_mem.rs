// SPDX-License-Identifier: MIT OR Apache-2.0
//! `btl_register_mem` and `btl_deregister_mem`.
//!
//! The handle that Open MPI shows to peers is `memory`'s. Grade: pending (a hit in the cache makes no system call).
//! Threads: any; nothing here stays in the port.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use ibex_ffi::openmpi::sys;

use super::endpoint::endpoint;
use super::module::Module;
use super::{detour, modules};
use crate::runtime::guard::fence;
use crate::runtime::memory::Registered;

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
        if is_away || modules::are_several() && detour::is_unproven(module, endpoint(peer)) {
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
    use crate::runtime::memory::HANDLE_SIZE;

    #[test]
    fn a_handle_fits_where_open_mpi_keeps_it() {
        assert!(HANDLE_SIZE <= sys::MCA_BTL_REG_HANDLE_MAX_SIZE as usize);
    }
}
