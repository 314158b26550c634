// SPDX-License-Identifier: MIT OR Apache-2.0
//! The component that Open MPI finds in `mca_pml_ibex.so`, once per process.
//!
//! Grade: setup. Threads: one. Tests: `hw-tests/tests/device/choice.rs`.
//!
//! Open MPI considers the components whose names are in a list, but uses only the first name of a list from the user.
//! So [`open`] adds each of the user's names: with `--mca pml ibex,ob1` Open MPI goes on with ob1 if ibex declines.
//! [`open`] also adds ibex to Open MPI's own list, which does not name it.
//!
//! Two lists from the user decide. `pml`: a list with ibex, or no list, lets Open MPI consider ibex; `^ibex`, or a list
//! without ibex, does not. `btl`: if it excludes ibex and the user names no PML, the PML declines.

use std::ffi::{CString, c_int};
use std::ptr::null_mut;
use std::sync::Arc;

use engine::tunables::{Faces, OutOfBounds, Tunables};
use ibex_ffi::openmpi::process::Process;
use ibex_ffi::openmpi::release::{self, PML_VERSION};
use ibex_ffi::openmpi::{sys, variable};

use super::communicator::Communicator;
use super::instance::{self, Pml, Rail, Settings};
use super::tools::listening;
use super::{module, progress};
use crate::runtime::component::{DATA, Shown, considered, names_ibex, permits_ibex, version};
use crate::runtime::entry::entry3;
use crate::runtime::guard::fence;
use crate::runtime::ports::{self, Request};
use crate::runtime::variables::{self, now, queues};
use crate::runtime::{copies, messages, modex, poller, refusal};

/// Length of a receive slot, bytes, if no other component has opened the ports.
const RECEIVE_SIZE: u32 = 32 << 10;

/// The symbol that Open MPI looks up in `mca_pml_ibex.so`.
// SAFETY: Open MPI defines this name for this component; no other library has it.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is given by Open MPI")]
// SAFETY: Open MPI's structure, whose pointers are to functions; only Open MPI writes to it (`Shown::new`).
static mca_pml_ibex_component: Shown<sys::mca_pml_base_component_t> = unsafe {
    Shown::new(sys::mca_pml_base_component_t {
        pmlm_version: version((b"ompi", b"pml", PML_VERSION), (open, close, register)),
        pmlm_data: DATA,
        pmlm_init: Some(entry3(pml_init)),
        pmlm_finalize: Some(pml_finalize),
    })
};

/// `mca_register_component_params`. Like the BTL, it fails on a refusal only in [`open`].
extern "C" fn register() -> c_int {
    fence("registering the component", sys::OPAL_ERROR, || {
        if copies::earlier().is_some() || refusal::other_openmpi().is_err() {
            return sys::OPAL_SUCCESS;
        }
        // SAFETY: M4: the component is being registered, so only this thread uses it.
        let version = unsafe { &(*mca_pml_ibex_component.get()).pmlm_version };
        let registered = variables::register_pml(version)
            .and_then(|()| queues::register::<Communicator>(version))
            .and_then(|()| variables::register_without_btl());
        registered.map_or_else(|code| code, |()| sys::OPAL_SUCCESS)
    })
}

/// `mca_open_component`: adds names to the list of PMLs that Open MPI considers.
extern "C" fn open() -> c_int {
    fence("opening the component", sys::OPAL_ERROR, || {
        if copies::is_refused() || refusal::other_openmpi().is_err() {
            return sys::OPAL_ERR_NOT_AVAILABLE;
        }
        ports::start_anew();
        variables::keep();
        let list = pmls();
        for name in considered(&list) {
            let name = CString::new(name).unwrap_or_default();
            // SAFETY: the call copies the name; Open MPI makes the list anew when it opens the framework.
            unsafe { sys::ibex_pml_consider(name.as_ptr()) };
        }
        sys::OPAL_SUCCESS
    })
}

extern "C" fn close() -> c_int {
    fence("closing the component", sys::OPAL_ERROR, || {
        ports::forget();
        sys::OPAL_SUCCESS
    })
}

/// `pmlm_init`: opens the ports, or shares those of the BTL. Null: the PML declines.
extern "C" fn pml_init(
    priority: &mut c_int,
    _enable_progress_threads: bool,
    threads: bool,
) -> *mut sys::mca_pml_base_module_t {
    fence("initialising the component", null_mut(), || {
        if let Some(why) = declines() {
            if is_asked_for() || now::verbosity() > 0 {
                messages::verbose(why);
            }
            return null_mut();
        }
        let Some(tunables) = parameters() else { return null_mut() };
        let value = c_int::try_from(tunables.priority).unwrap_or(c_int::MAX);
        // It has the best priority so far.
        if value <= *priority {
            return null_mut();
        }
        // Comes before `publish_pml`, because ibex' BTL publishes here that the PML was not selected.
        // SAFETY: M4: this thread initialises MPI, and the frameworks are open.
        if unsafe { sys::ibex_bml_begin(threads) } != sys::OPAL_SUCCESS {
            return null_mut();
        }
        let Some(pml) = make(&tunables, threads) else { return null_mut() };
        if let Err(code) = modex::publish_pml(true) {
            messages::not_published(code);
            return null_mut();
        }
        if let Some(rail) = pml.rails().first() {
            now::begin_eager_limit(rail.properties.copy_size);
        }
        instance::begin(pml);
        progress::begin();
        *priority = value;
        module::pointer()
    })
}

/// Reads the parameters; `None` if one is out of bounds.
fn parameters() -> Option<Tunables> {
    let refused = |error: OutOfBounds| match error.faces {
        Faces::Pml => messages::parameter_of_pml(&error),
        _ => messages::parameter(&error),
    };
    variables::tunables(Faces::Pml).map_err(refused).ok()
}

fn make(tunables: &Tunables, threads: bool) -> Option<Box<Pml>> {
    let settings = Settings {
        rank: Process::me().map_or(0, |me| modex::from_openmpi(me.name()).rank),
        eager_limit: tunables.eager_limit as usize,
        read_size: tunables.read_size as u32,
        unexpected_memory: tunables.unexpected_memory,
        threads,
    };
    let request = Request {
        tunables,
        receive_size: RECEIVE_SIZE,
        bounce_size: settings.eager_limit.min(RECEIVE_SIZE as usize) as u32,
        threads,
        is_asked_for,
    };
    let rails =
        ports::open(&request, |port| Ok(Rail::new(&Arc::clone(port), settings.eager_limit, settings.read_size)));
    (!rails.is_empty()).then(|| Pml::new(rails, &settings))
}

/// `pmlm_finalize`: ends the PML, and its ports unless another component uses them.
extern "C" fn pml_finalize() -> c_int {
    fence("finalising the component", sys::OPAL_ERROR, || {
        listening::offer(false);
        poller::unset_pml();
        // SAFETY: M4: this is Open MPI's last call.
        unsafe { instance::end() };
        sys::OPAL_SUCCESS
    })
}

/// The user's list of PMLs, verbatim; empty without one.
pub(crate) fn pmls() -> String {
    variable::text(c"pml", None, None).unwrap_or_default()
}

pub(crate) fn is_asked_for() -> bool {
    names_ibex(&pmls())
}

/// Returns why the PML declines for this job, whatever its ports.
pub(crate) fn declines() -> Option<&'static str> {
    // With fault tolerance Open MPI looks into pending requests, assuming that they are ob1's or cm's.
    if release::is_fault_tolerant() {
        return Some("the PML declines, as the job is started with fault tolerance: ob1 has it, over the BTL of ibex");
    }
    let btls = variable::text(c"btl", None, None).unwrap_or_default();
    (!is_asked_for() && !permits_ibex(&btls))
        .then_some("the PML declines, as the parameter btl leaves ibex out and the parameter pml does not ask for it")
}
