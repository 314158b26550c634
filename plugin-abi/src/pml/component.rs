// SPDX-License-Identifier: MIT OR Apache-2.0
//! The component: what Open MPI finds in `mca_pml_ibex.so`, once per process.
//!
//! Its life: *register* (parameters; also in `ompi_info`), *open* (says which PMLs may be chosen), *init* (ports are
//! opened, or those of the BTL shared), *finalize*, *close*. It declines where no port can be used. Grade: setup.
//! Threads: one.
//!
//! Open MPI considers the components whose names are in a list. Where the user gave one, that is a single entry, of
//! which the first name alone counts; so *open* adds each name of it, and `--mca pml ibex,ob1` goes on with ob1 where
//! ibex declines. Where the user gave none it has names that ibex is not among, and *open* adds this one. See `choice`.

use std::cell::UnsafeCell;
use std::ffi::{CString, c_int};
use std::ptr::null_mut;
use std::sync::Arc;

use engine::tunables::{Faces, OutOfBounds, Tunables};
use ibex_ffi::openmpi::release::PML_VERSION;
use ibex_ffi::openmpi::sys;

use super::choice;
use super::instance::{self, Pml, Rail, Settings};
use super::listening;
use super::module::module;
use super::persistent::FUNCTIONS;
use super::progress;
use crate::runtime::component::{number, text};
use crate::runtime::guard::fence;
use crate::runtime::poller;
use crate::runtime::ports::{self, Request};
use crate::runtime::variables;
use crate::runtime::{copies, messages, modex, refusal};

/// The longest message on the wire, bytes, where no other face has opened the ports.
const RECEIVE_SIZE: u32 = 32 << 10;

/// The component's structure, which Open MPI keeps pointers into.
#[repr(transparent)]
struct Component(UnsafeCell<sys::mca_pml_base_component_t>);

// SAFETY: constant but for what Open MPI writes to its own fields while one thread initialises it. Its pointers are to
// functions.
unsafe impl Sync for Component {}

/// The symbol that Open MPI looks up in `mca_pml_ibex.so`.
// SAFETY: the name is Open MPI's for this component and no other library's.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is given by Open MPI")]
static mca_pml_ibex_component: Component = Component(UnsafeCell::new(sys::mca_pml_base_component_t {
    pmlm_version: sys::mca_base_component_t {
        mca_major_version: sys::MCA_BASE_VERSION_MAJOR as c_int,
        mca_minor_version: sys::MCA_BASE_VERSION_MINOR as c_int,
        mca_release_version: sys::MCA_BASE_VERSION_RELEASE as c_int,
        mca_project_name: text(b"ompi"),
        mca_project_major_version: sys::OPAL_MAJOR_VERSION as c_int,
        mca_project_minor_version: sys::OPAL_MINOR_VERSION as c_int,
        mca_project_release_version: sys::OPAL_RELEASE_VERSION as c_int,
        mca_type_name: text(b"pml"),
        mca_type_major_version: (PML_VERSION / 100) as c_int,
        mca_type_minor_version: (PML_VERSION / 10 % 10) as c_int,
        mca_type_release_version: (PML_VERSION % 10) as c_int,
        mca_component_name: text(b"ibex"),
        mca_component_major_version: number(env!("CARGO_PKG_VERSION_MAJOR")),
        mca_component_minor_version: number(env!("CARGO_PKG_VERSION_MINOR")),
        mca_component_release_version: number(env!("CARGO_PKG_VERSION_PATCH")),
        mca_open_component: Some(open),
        mca_close_component: Some(close),
        mca_query_component: None,
        mca_register_component_params: Some(register),
        mca_component_flags: 0,
        reserved: [0; 28],
    },
    // It cannot be checkpointed: queue pairs do not survive.
    pmlm_data: sys::mca_base_component_data_t { param_field: 0, reserved: [0; 32] },
    pmlm_init: Some(pml_init),
    pmlm_finalize: Some(pml_finalize),
}));

/// Open MPI's pointer to the component.
fn component() -> *mut sys::mca_pml_base_component_t {
    mca_pml_ibex_component.0.get()
}

/// `mca_register_component_params`. As for the BTL, a refusal is no error here but in [`open`].
unsafe extern "C" fn register() -> c_int {
    fence("registering the component", sys::OPAL_ERROR, || {
        if copies::earlier().is_some() || refusal::other_openmpi().is_err() {
            return sys::OPAL_SUCCESS;
        }
        // SAFETY: the component's first field, which never moves; this component is being registered.
        let registered = unsafe {
            let version = &raw const (*component()).pmlm_version;
            variables::register_pml(version)
                .and_then(|()| super::variables::register(version))
                .and_then(|()| variables::register_without_btl())
        };
        registered.map_or_else(|code| code, |()| sys::OPAL_SUCCESS)
    })
}

/// `mca_open_component`: says which PMLs may be chosen.
unsafe extern "C" fn open() -> c_int {
    fence("opening the component", sys::OPAL_ERROR, || {
        if copies::is_refused() {
            return sys::OPAL_ERR_NOT_AVAILABLE;
        }
        if refusal::other_openmpi().is_err() {
            return sys::OPAL_ERR_NOT_AVAILABLE;
        }
        ports::start_anew();
        let list = choice::pmls();
        for name in choice::considered(&list) {
            let name = CString::new(name).unwrap_or_default();
            // SAFETY: copied by the call; the list is made anew when the framework is opened.
            unsafe { sys::ibex_pml_consider(name.as_ptr()) };
        }
        sys::OPAL_SUCCESS
    })
}

/// `mca_close_component`.
unsafe extern "C" fn close() -> c_int {
    fence("closing the component", sys::OPAL_ERROR, || {
        ports::forget();
        sys::OPAL_SUCCESS
    })
}

/// `pmlm_init`: opens the ports, or shares those of the BTL. Null: ibex takes no part.
unsafe extern "C" fn pml_init(
    priority: *mut c_int,
    _enable_progress_threads: bool,
    threads: bool,
) -> *mut sys::mca_pml_base_module_t {
    fence("initialising the component", null_mut(), || {
        if let Some(why) = choice::declines() {
            if choice::is_asked_for() || variables::tunables(Faces::Pml).is_ok_and(|tunables| tunables.verbose > 0) {
                messages::verbose(why);
            }
            return null_mut();
        }
        let Some(tunables) = parameters() else { return null_mut() };
        let value = c_int::try_from(tunables.priority).unwrap_or(c_int::MAX);
        // SAFETY: P4: the out parameter, in which the best priority so far stands.
        if value <= unsafe { priority.read() } {
            return null_mut();
        }
        // Before this publishes anything, as the BTL of ibex publishes that it was not chosen.
        // SAFETY: in the thread that initialises MPI, with the frameworks open.
        if unsafe { sys::ibex_bml_begin(threads) } != sys::OPAL_SUCCESS {
            return null_mut();
        }
        let Some(pml) = make(&tunables, threads) else { return null_mut() };
        if let Err(code) = modex::publish_pml(true) {
            messages::not_published(code);
            return null_mut();
        }
        instance::begin(pml);
        progress::begin();
        // SAFETY: P4: the out parameter.
        unsafe { priority.write(value) };
        module()
    })
}

/// The parameters, if all are permitted. Where one is not that concerns the ports, the BTL takes no part either.
fn parameters() -> Option<Tunables> {
    let refused = |error: OutOfBounds| match error.faces {
        Faces::Pml => messages::parameter_of_pml(&error),
        _ => messages::parameter(&error),
    };
    variables::tunables(Faces::Pml).map_err(refused).ok()
}

fn make(tunables: &Tunables, threads: bool) -> Option<Pml> {
    let settings = Settings {
        eager_limit: tunables.eager_limit as usize,
        read_size: tunables.read_size as u32,
        unexpected_memory: tunables.unexpected_memory,
        is_verbose: tunables.verbose > 0,
        threads,
        functions: FUNCTIONS,
        poll_more: progress::poll_more::<false>,
    };
    let request = Request {
        tunables,
        receive_size: RECEIVE_SIZE,
        bounce_size: settings.eager_limit.min(RECEIVE_SIZE as usize) as u32,
        threads,
        is_asked_for: choice::is_asked_for,
    };
    let rails =
        ports::open(&request, |port| Ok(Rail::new(&Arc::clone(port), settings.eager_limit, settings.read_size)));
    (!rails.is_empty()).then(|| Pml::new(rails, &settings))
}

/// `pmlm_finalize`: ends the PML, and its ports unless another face uses them.
unsafe extern "C" fn pml_finalize() -> c_int {
    fence("finalising the component", sys::OPAL_ERROR, || {
        listening::offer(false);
        poller::unset_pml();
        // SAFETY: P4: Open MPI's last call.
        unsafe { instance::end() };
        sys::OPAL_SUCCESS
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_component_says_what_open_mpi_checks_before_it_loads_it() {
        // SAFETY: a static that no other test writes.
        let version = unsafe { component().read() }.pmlm_version;
        assert_eq!((version.mca_major_version, version.mca_minor_version), (2, 1));
        assert_eq!(version.mca_type_name[..4], text::<4>(b"pml"));
        assert_eq!(version.mca_component_name[..5], text::<5>(b"ibex"));
    }
}
