// SPDX-License-Identifier: MIT OR Apache-2.0
//! `btl_init`: a module for each port that this process can use.
//!
//! Grade: setup. Threads: one. Tests: the device tests in `hw-tests`.

use std::ffi::c_int;
use std::ptr::null_mut;

use ibex_ffi::openmpi::{sys, variable};

use super::module::{self, Module};
use super::{emulated_atomic, progress, settings};
use crate::runtime::component::names_ibex;
use crate::runtime::guard::fence;
use crate::runtime::modex;
use crate::runtime::ports::{self, Request};

/// `btl_init`: a module for each usable port. Open MPI frees the array. Null: ibex takes no part.
///
/// `enable_progress_threads` is true whether or not there are any, so it is not looked at.
pub(crate) unsafe extern "C" fn btl_init(
    count: *mut c_int,
    _enable_progress_threads: bool,
    threads: bool,
) -> *mut *mut sys::mca_btl_base_module_t {
    fence("initialising the component", null_mut(), || {
        // SAFETY: the out parameter.
        unsafe { count.write(0) };
        let modules = make_modules(threads);
        if modules.is_empty() {
            return null_mut();
        }
        let bytes = modules.len() * size_of::<*mut sys::mca_btl_base_module_t>();
        // SAFETY: Open MPI gives the array to free().
        let array = unsafe { libc::malloc(bytes) }.cast::<*mut sys::mca_btl_base_module_t>();
        if array.is_null() {
            return null_mut();
        }
        let number = modules.len();
        for (index, module) in modules.into_iter().enumerate() {
            // SAFETY: within the array just allocated.
            unsafe { array.add(index).write(module::add(module)) };
        }
        // SAFETY: the out parameter.
        unsafe { count.write(number as c_int) };
        array
    })
}

/// A module for each port, those that have a module's slots.
#[allow(clippy::vec_box, reason = "a module never moves: Open MPI keeps its address")]
fn make_modules(threads: bool) -> Vec<Box<Module>> {
    let Some(tunables) = settings::tunables() else {
        return Vec::new();
    };
    let settings = settings::module();
    let request = Request {
        tunables: &tunables,
        receive_size: settings.btl_max_send_size as u32,
        bounce_size: settings.btl_eager_limit.max(settings.btl_rndv_eager_limit) as u32,
        threads,
        is_asked_for: is_asked_for_by_name,
    };
    progress::begin();
    // As long as the PML does not say otherwise. What is said is found by a peer at once, what is not is searched for.
    let _ = modex::publish_pml(false);
    let mut modules = ports::open(&request, |port| Module::new(&settings, port, &tunables, emulated_atomic::stand_in));
    // Else the user has set it.
    if settings.btl_latency == 0 {
        let rates: Vec<u32> = modules.iter().map(|module| module.mbps()).collect();
        for (module, latency) in modules.iter_mut().zip(settings::latencies(&rates)) {
            module.set_latency(latency);
        }
    }
    modules
}

/// Whether the user named ibex in the list of transports, rather than getting it by default.
fn is_asked_for_by_name() -> bool {
    variable::text(c"btl", None, None).is_some_and(|list| names_ibex(&list))
}
