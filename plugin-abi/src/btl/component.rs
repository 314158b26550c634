// SPDX-License-Identifier: MIT OR Apache-2.0
//! The component: what Open MPI finds in `mca_btl_ibex.so`, once per process.
//!
//! Its life: *register* (variables; also in `ompi_info`, so no device is touched), *open* (parameters are checked),
//! *init* (`init`: ports are chosen and opened, their addresses published, a module made for each), *progress*
//! (`progress`), each module's finalize (`functions`), *close*. The library stays mapped when Open MPI unloads it, so
//! *open* starts from nothing each time. Grade: setup. Threads: one. Tests: `tests/component.rs`.

use std::ffi::c_int;

use engine::tunables::Faces;
use ibex_ffi::openmpi::release::BTL_VERSION;
use ibex_ffi::openmpi::sys;

use super::functions::template;
use super::init::btl_init;
use super::progress::{self, btl_progress};
use super::{module, settings};
use crate::runtime::component::{DATA, Shown, version};
use crate::runtime::guard::{self, fence};
use crate::runtime::{copies, messages, ports, refusal, variables};

/// The symbol that Open MPI looks up in `mca_btl_ibex.so`.
// SAFETY: the name is Open MPI's for this component and no other library's.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is given by Open MPI")]
// SAFETY: Open MPI's structure.
static mca_btl_ibex_component: Shown<sys::mca_btl_base_component_t> = unsafe {
    Shown::new(sys::mca_btl_base_component_t {
        btl_version: version((b"opal", b"btl", BTL_VERSION), (open, close, register)),
        btl_data: DATA,
        btl_init: Some(btl_init),
        btl_progress: Some(btl_progress),
    })
};

/// Open MPI's pointer to the component.
fn component() -> *mut sys::mca_btl_base_component_t {
    mca_btl_ibex_component.get()
}

/// `mca_register_component_params`: the variables. In another Open MPI, or beside another ibex, nothing is registered,
/// before any structure is shared with it. That is no error here but in [`open`]: a component that was asked for by
/// name and cannot be registered ends the job (`mca_base_component_find.c`, `component_find_check`), one that cannot be
/// opened does not.
unsafe extern "C" fn register() -> c_int {
    fence("registering the component", sys::OPAL_ERROR, || {
        // First, as another copy's component would be found under the name of this one's.
        if copies::earlier().is_some() {
            return sys::OPAL_SUCCESS;
        }
        if let Err(refusal) = refusal::other_openmpi() {
            messages::other_openmpi(&refusal);
            return sys::OPAL_SUCCESS;
        }
        // SAFETY: the component's first field, which never moves.
        let version = unsafe { &raw mut (*component()).btl_version };
        // SAFETY: this component is being registered.
        if let Err(code) = unsafe { variables::register(version) } {
            return code;
        }
        // SAFETY: the component is being registered, with a template of this component's.
        unsafe { settings::register(version, &template(component())) }
    })
}

/// `mca_open_component`: starts from nothing, and checks the parameters.
unsafe extern "C" fn open() -> c_int {
    fence("opening the component", sys::OPAL_ERROR, || {
        // Not when it was registered: then it is not known yet which process is the first of its host.
        if copies::is_refused() {
            return sys::OPAL_ERR_NOT_AVAILABLE;
        }
        guard::reset();
        progress::start_anew();
        ports::start_anew();
        module::start_anew();
        settings::set_tunables(None);
        if refusal::other_openmpi().is_err() {
            // Said when it was registered.
            return sys::OPAL_ERR_NOT_AVAILABLE;
        }
        variables::keep();
        // SAFETY: the component is being opened.
        let limits = unsafe { settings::follow(&template(component())) };
        if let Err(error) = settings::check(&limits) {
            messages::parameter(&error);
            return sys::OPAL_ERR_NOT_AVAILABLE;
        }
        match variables::tunables(Faces::Btl) {
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

/// `mca_close_component`.
unsafe extern "C" fn close() -> c_int {
    fence("closing the component", sys::OPAL_ERROR, || {
        ports::forget();
        settings::set_tunables(None);
        sys::OPAL_SUCCESS
    })
}
