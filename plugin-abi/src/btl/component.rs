// SPDX-License-Identifier: MIT OR Apache-2.0
//! The component that Open MPI finds in `mca_btl_ibex.so`, once per process. Its life: *register* (variables; also in
//! `ompi_info`, so without a device), *open* (checks the parameters), *init* (chooses and opens ports, publishes their
//! addresses, and makes a module for each), *progress* (`progress`), finalize of each module (`functions`), *close*.
//! The library stays mapped when Open MPI unloads it, so *open* resets all state each time. Grade: setup. Threads: one.
//! Tests: `tests/component.rs`.

use std::ffi::c_int;
use std::ptr::null_mut;

use engine::tunables::Faces;
use ibex_ffi::openmpi::release::BTL_VERSION;
use ibex_ffi::openmpi::{sys, variable};

use super::functions::template;
use super::module::{self, Module};
use super::one_sided::emulated_atomic;
use super::progress::{self, btl_progress};
use super::settings;
use crate::runtime::component::{DATA, Shown, names_ibex, version};
use crate::runtime::entry::{Out, entry3};
use crate::runtime::guard::{self, fence};
use crate::runtime::ports::{self, Request};
use crate::runtime::{copies, messages, modex, refusal, variables};

/// The symbol that Open MPI looks up in `mca_btl_ibex.so`.
// SAFETY: Open MPI gives this name to this component, so no other library has it.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is given by Open MPI")]
// SAFETY: Open MPI's structure, which only Open MPI writes to.
static mca_btl_ibex_component: Shown<sys::mca_btl_base_component_t> = unsafe {
    Shown::new(sys::mca_btl_base_component_t {
        btl_version: version((b"opal", b"btl", BTL_VERSION), (open, close, register)),
        btl_data: DATA,
        btl_init: Some(entry3(btl_init)),
        btl_progress: Some(btl_progress),
    })
};

fn component() -> *mut sys::mca_btl_base_component_t {
    mca_btl_ibex_component.get()
}

/// `mca_register_component_params`: registers the variables. In another Open MPI, or beside another ibex, it registers
/// nothing. It returns no error then, but [`open`] does: a component that the user named and that cannot be registered
/// ends the job (`mca_base_component_find.c`, `component_find_check`); one that cannot be opened does not.
unsafe extern "C" fn register() -> c_int {
    fence("registering the component", sys::OPAL_ERROR, || {
        // First, because the component of another copy would be found under this one's name.
        if copies::earlier().is_some() {
            return sys::OPAL_SUCCESS;
        }
        if let Err(refusal) = refusal::other_openmpi() {
            messages::other_openmpi(&refusal);
            return sys::OPAL_SUCCESS;
        }
        // The first field of the component.
        let version = component().cast::<sys::mca_base_component_t>();
        // SAFETY: only this thread uses the component now.
        if let Err(code) = variables::register(unsafe { &*version }) {
            return code;
        }
        // SAFETY: this component is being registered, and the template is its own.
        unsafe { settings::register(version, &template(component())) }
    })
}

unsafe extern "C" fn open() -> c_int {
    fence("opening the component", sys::OPAL_ERROR, || {
        // Not in `register`, which runs before ibex knows which process of the host prints the message.
        if copies::is_refused() {
            return sys::OPAL_ERR_NOT_AVAILABLE;
        }
        guard::reset();
        progress::start_anew();
        ports::start_anew();
        module::start_anew();
        settings::set_tunables(None);
        if refusal::other_openmpi().is_err() {
            // `register` has printed the reason.
            return sys::OPAL_ERR_NOT_AVAILABLE;
        }
        variables::keep();
        // SAFETY: the component is being opened.
        let limits = unsafe { settings::follow(&template(component())) };
        let checked = settings::check(&limits);
        match checked.and_then(|()| variables::tunables(Faces::Btl).map_err(|error| error.to_string())) {
            Ok(tunables) => {
                settings::set_tunables(Some(tunables));
                sys::OPAL_SUCCESS
            }
            Err(error) => {
                messages::parameter(&error);
                sys::OPAL_ERR_NOT_AVAILABLE
            }
        }
    })
}

extern "C" fn close() -> c_int {
    fence("closing the component", sys::OPAL_ERROR, || {
        ports::forget();
        settings::set_tunables(None);
        sys::OPAL_SUCCESS
    })
}

/// `btl_init`: returns an array of modules, one for each usable port, which Open MPI frees; null if there is none.
/// `enable_progress_threads` is ignored, because it is true whether or not there are any.
///
/// # Safety
/// Unless `threads`, one thread at a time calls the component.
unsafe extern "C" fn btl_init(
    count: Out<'_, c_int>,
    _enable_progress_threads: bool,
    threads: bool,
) -> *mut *mut sys::mca_btl_base_module_t {
    fence("initialising the component", null_mut(), || {
        count.give(|| 0);
        let modules = make_modules(threads);
        if modules.is_empty() {
            return null_mut();
        }
        let bytes = modules.len() * size_of::<*mut sys::mca_btl_base_module_t>();
        // SAFETY: Open MPI frees the array with free().
        let array = unsafe { libc::malloc(bytes) }.cast::<*mut sys::mca_btl_base_module_t>();
        if array.is_null() {
            return null_mut();
        }
        let number = modules.len();
        for (index, module) in modules.into_iter().enumerate() {
            // SAFETY: the index is within the array.
            unsafe { array.add(index).write(module::add(module)) };
        }
        count.give(|| number as c_int);
        array
    })
}

/// Makes a module for each port for which there is memory.
#[allow(clippy::vec_box, reason = "a module never moves: Open MPI keeps its address")]
fn make_modules(threads: bool) -> Vec<Box<Module>> {
    let Some(tunables) = settings::tunables() else { return Vec::new() };
    let settings = settings::module();
    let request = Request {
        tunables: &tunables,
        receive_size: settings.btl_max_send_size as u32,
        bounce_size: settings.btl_eager_limit.max(settings.btl_rndv_eager_limit) as u32,
        threads,
        is_asked_for: || variable::text(c"btl", None, None).is_some_and(|list| names_ibex(&list)),
    };
    progress::begin();
    // The PML overwrites it if chosen. A peer finds a published value at once, but searches for a missing one.
    let _ = modex::publish_pml(false);
    let mut modules = ports::open(&request, |port| Module::new(&settings, port, &tunables, emulated_atomic::stand_in));
    // Unless the user has set it.
    if settings.btl_latency == 0 {
        let rates: Vec<u32> = modules.iter().map(|module| module.mbps()).collect();
        for (module, latency) in modules.iter_mut().zip(settings::latencies(&rates)) {
            module.set_latency(latency);
        }
    }
    modules
}
