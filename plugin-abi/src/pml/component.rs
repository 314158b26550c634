// SPDX-License-Identifier: MIT OR Apache-2.0
//! The component: what Open MPI finds in `mca_pml_ibex.so`, once per process.
//!
//! Its life: *register* (parameters; also in `ompi_info`), *open* (says which PMLs may be chosen), *init* (ports are
//! opened, or those of the BTL shared), *finalize*, *close*. It declines where no port can be used. Grade: setup.
//! Threads: one.
//!
//! Open MPI considers the components whose names are in a list. Where the user gave one, that is a single entry, of
//! which the first name alone counts; so *open* adds each name of it, and `--mca pml ibex,ob1` goes on with ob1 where
//! ibex declines. Where the user gave none it has names that ibex is not among, and *open* adds this one.
//!
//! Two lists of the user's count. `pml`: a list with ibex, or none, has it considered; `^ibex`, or a list without it,
//! not. `btl`: whoever leaves ibex out of the transports, and asks for no PML, wants those that he has named: the PML
//! declines. Tests: below; `hw-tests/tests/device/choice.rs`.

use std::ffi::{CString, c_int};
use std::ptr::null_mut;
use std::sync::Arc;

use engine::matching::Contexts;
use engine::tunables::{Faces, OutOfBounds, Tunables};
use ibex_ffi::openmpi::process::{Name, Process};
use ibex_ffi::openmpi::release::{self, PML_VERSION};
use ibex_ffi::openmpi::{sys, variable};

use super::instance::{self, Pml, Rail, Settings};
use super::persistent::{self, FUNCTIONS};
use super::{context, listening, probe, progress, receive, send};
use crate::runtime::component::{DATA, Shown, names_ibex, version};
use crate::runtime::guard::fence;
use crate::runtime::ports::{self, Request};
use crate::runtime::variables::{self, now};
use crate::runtime::{copies, messages, modex, poller, refusal};

/// The longest message on the wire, bytes, where no other face has opened the ports.
const RECEIVE_SIZE: u32 = 32 << 10;

/// The symbol that Open MPI looks up in `mca_pml_ibex.so`.
// SAFETY: the name is Open MPI's for this component and no other library's.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is given by Open MPI")]
// SAFETY: Open MPI's structure.
static mca_pml_ibex_component: Shown<sys::mca_pml_base_component_t> = unsafe {
    Shown::new(sys::mca_pml_base_component_t {
        pmlm_version: version((b"ompi", b"pml", PML_VERSION), (open, close, register)),
        pmlm_data: DATA,
        pmlm_init: Some(pml_init),
        pmlm_finalize: Some(pml_finalize),
    })
};

/// `mca_register_component_params`. As for the BTL, a refusal is no error here but in [`open`].
unsafe extern "C" fn register() -> c_int {
    fence("registering the component", sys::OPAL_ERROR, || {
        if copies::earlier().is_some() || refusal::other_openmpi().is_err() {
            return sys::OPAL_SUCCESS;
        }
        // SAFETY: the component's first field, which never moves; this component is being registered.
        let registered = unsafe {
            let version = &raw const (*mca_pml_ibex_component.get()).pmlm_version;
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
        variables::keep();
        let list = pmls();
        for name in considered(&list) {
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
        if let Some(why) = declines() {
            if is_asked_for() || now::verbosity() > 0 {
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
        if let Some(rail) = pml.rails().first() {
            now::begin_eager_limit(rail.copy_size);
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
        threads,
        functions: FUNCTIONS,
        poll_more: progress::poll_more::<false>,
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

/// Open MPI copies it; changing it later changes nothing.
// SAFETY: Open MPI's structure.
static MODULE: Shown<sys::mca_pml_base_module_t> = unsafe {
    Shown::new(sys::mca_pml_base_module_t {
        pml_add_procs: Some(context::pml_add_procs),
        pml_del_procs: Some(context::pml_del_procs),
        pml_enable: Some(pml_enable),
        pml_progress: Some(progress::pml_progress),
        pml_add_comm: Some(context::pml_add_comm),
        pml_del_comm: Some(context::pml_del_comm),
        pml_irecv_init: Some(persistent::pml_irecv_init),
        pml_irecv: Some(receive::pml_irecv),
        pml_recv: Some(receive::pml_recv),
        pml_isend_init: Some(persistent::pml_isend_init),
        pml_isend: Some(send::pml_isend),
        pml_send: Some(send::pml_send),
        pml_iprobe: Some(probe::pml_iprobe),
        pml_probe: Some(probe::pml_probe),
        pml_start: Some(persistent::pml_start),
        pml_improbe: Some(probe::pml_improbe),
        pml_mprobe: Some(probe::pml_mprobe),
        pml_imrecv: Some(receive::pml_imrecv),
        pml_mrecv: Some(receive::pml_mrecv),
        pml_max_contextid: Contexts::<(), ()>::LIMIT,
        pml_max_tag: i32::MAX,
        pml_flags: release::PML_FLAGS,
        // Nothing else is ever called.
        ..release::PML_MODULE
    })
};

/// Open MPI's pointer to the module.
pub(crate) fn module() -> *mut sys::mca_pml_base_module_t {
    MODULE.get()
}

/// `pml_enable`: once, with true, when this PML has been chosen. All is made when the component is initialised.
unsafe extern "C" fn pml_enable(enable: bool) -> c_int {
    fence("pml_enable", sys::OPAL_ERROR, || {
        listening::offer(enable);
        sys::OPAL_SUCCESS
    })
}

/// The PMLs that the user asked for, as he wrote it; empty where he did not.
pub(crate) fn pmls() -> String {
    variable::text(c"pml", None, None).unwrap_or_default()
}

/// Whether the user asked for this one.
pub(crate) fn is_asked_for() -> bool {
    names_ibex(&pmls())
}

/// The names to be added to those that Open MPI considers.
pub(crate) fn considered(list: &str) -> Vec<&str> {
    if names_ibex(list) {
        list.split(',').map(str::trim).collect()
    } else if permits_ibex(list) {
        vec!["ibex"]
    } else {
        Vec::new()
    }
}

/// Why the PML is not for this job, whatever ports there are.
pub(crate) fn declines() -> Option<&'static str> {
    // Open MPI looks into pending requests then, and takes them for such as ob1's and cm's.
    if release::is_fault_tolerant() {
        return Some("the PML declines, as the job is started with fault tolerance: ob1 has it, over the BTL of ibex");
    }
    let btls = variable::text(c"btl", None, None).unwrap_or_default();
    (!is_asked_for() && !permits_ibex(&btls))
        .then_some("the PML declines, as the parameter btl leaves ibex out and the parameter pml does not ask for it")
}

/// Whether a list of the user's permits ibex: it names it, or is empty, or says what else is left out.
fn permits_ibex(list: &str) -> bool {
    match list.trim().strip_prefix('^') {
        Some(without) => !names_ibex(without),
        None => list.trim().is_empty() || names_ibex(list),
    }
}

/// Whether a process has chosen this PML, too; else says that it has not.
pub(crate) fn is_same(process: Process) -> bool {
    let peer = modex::from_openmpi(process.name());
    let is_me = Process::me().is_some_and(|me| me.name() == process.name());
    if is_me || modex::has_pml(peer) {
        return true;
    }
    messages::other_pml(peer, &process.host());
    false
}

/// Says that rank 0 has chosen another PML, if it has. Open MPI compares with it wherever it is, and names no cure.
pub(crate) fn say_of_rank_0() {
    let rank_0 = Process::me().and_then(|me| Process::of(Name { rank: 0, ..me.name() }));
    rank_0.map(is_same);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_open_mpi_calls_is_there() {
        // SAFETY: a static that nobody writes.
        let module = unsafe { module().read() };
        assert!(module.pml_improbe.is_some() && module.pml_mrecv.is_some() && module.pml_start.is_some());
        assert!(module.pml_max_contextid >= 1 << 16, "Open MPI does not survive their end");
        assert_eq!(Contexts::<(), ()>::EXTENDED, sys::IBEX_EXTENDED_CONTEXTS);
    }

    #[test]
    fn each_name_of_a_list_with_ibex_is_considered_and_ibex_where_nothing_is_against_it() {
        assert_eq!(considered("ibex"), ["ibex"]);
        assert_eq!(considered("ibex, ob1"), ["ibex", "ob1"]);
        for list in ["", "^ucx", "^ucx,cm"] {
            assert_eq!(considered(list), ["ibex"], "{list:?}");
        }
        for list in ["ob1", "^ibex", "^ucx, ibex", "ibexx", "ucx,ob1"] {
            assert!(considered(list).is_empty(), "{list:?}");
        }
    }

    #[test]
    fn transports_without_ibex_are_no_job_of_its() {
        for (list, permits) in
            [("", true), ("self,ibex", true), ("^tcp", true), ("self,vader", false), ("^ibex", false), ("tcp", false)]
        {
            assert_eq!(permits_ibex(list), permits, "{list:?}");
        }
    }
}
