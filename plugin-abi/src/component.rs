// SPDX-License-Identifier: MIT OR Apache-2.0
//! The component: what Open MPI finds in `mca_btl_ibex.so`, once per process.
//!
//! Its life: *register* (variables; also in `ompi_info`, so no device is touched), *open* (parameters are checked), *init*
//! (ports are chosen and opened, their addresses published, a module made for each), *progress*, each module's finalize,
//! *close*. The library stays mapped when Open MPI unloads it, so *open* starts from nothing each time.
//! Grade: setup, but for [`progress`]. Threads: one until init is done; then see `exclusive`.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::address::PortAddress;
use engine::port::{Port, Setup};
use engine::tunables::Tunables;
use engine::{device, events};
use ibex_ffi::openmpi::process::Process;
use ibex_ffi::openmpi::sys;

use crate::guard::{self, fence};
use crate::module::{Module, template};
use crate::variables::Limits;
use crate::{messages, modex, progress, refusal, variables, watch};

/// A value that Open MPI keeps pointers into.
#[repr(transparent)]
pub(crate) struct Shared<T>(UnsafeCell<T>);

// SAFETY: the component's structure is constant but for what Open MPI writes to its own fields while one thread initialises
// it; the template is written by that thread and read by it.
unsafe impl<T> Sync for Shared<T> {}

/// The symbol that Open MPI looks up in `mca_btl_ibex.so`.
// SAFETY: the name is Open MPI's for this component and no other library's.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is given by Open MPI")]
pub(crate) static mca_btl_ibex_component: Shared<sys::mca_btl_base_component_t> =
    Shared(UnsafeCell::new(sys::mca_btl_base_component_t {
        btl_version: sys::mca_base_component_t {
            mca_major_version: sys::MCA_BASE_VERSION_MAJOR as c_int,
            mca_minor_version: sys::MCA_BASE_VERSION_MINOR as c_int,
            mca_release_version: sys::MCA_BASE_VERSION_RELEASE as c_int,
            mca_project_name: text(b"opal"),
            mca_project_major_version: sys::OPAL_MAJOR_VERSION as c_int,
            mca_project_minor_version: sys::OPAL_MINOR_VERSION as c_int,
            mca_project_release_version: sys::OPAL_RELEASE_VERSION as c_int,
            mca_type_name: text(b"btl"),
            mca_type_major_version: (sys::BTL_VERSION / 100) as c_int,
            mca_type_minor_version: (sys::BTL_VERSION / 10 % 10) as c_int,
            mca_type_release_version: (sys::BTL_VERSION % 10) as c_int,
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
        btl_data: sys::mca_base_component_data_t { param_field: 0, reserved: [0; 32] },
        btl_init: Some(init),
        btl_progress: Some(component_progress),
    }));

/// The fields of a module as the user's settings leave them: Open MPI keeps pointers into it.
static TEMPLATE: Shared<std::mem::MaybeUninit<sys::mca_btl_base_module_t>> =
    Shared(UnsafeCell::new(std::mem::MaybeUninit::uninit()));

/// The most ports one process uses.
pub(crate) const MAX_PORTS: usize = 16;

/// See [`progress_watched`].
const BUSY: usize = 4;

/// What progress goes through. Slots are filled in order at init and emptied when their module is finalized.
static MODULES: [AtomicPtr<Module>; MAX_PORTS] = [const { AtomicPtr::new(null_mut()) }; MAX_PORTS];
static MODULE_COUNT: AtomicUsize = AtomicUsize::new(0);
static DEFECT_REPORTED: AtomicBool = AtomicBool::new(false);

/// Whether a port was opened, in this MPI's life so far.
static HAS_OPENED_PORTS: AtomicBool = AtomicBool::new(false);

/// What open leaves for init, and init for `add_procs`.
struct Opened {
    tunables: Option<Tunables>,
    ports: Vec<PortAddress>,
}

static OPENED: Mutex<Opened> = Mutex::new(Opened { tunables: None, ports: Vec::new() });

fn opened() -> MutexGuard<'static, Opened> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A text as a C array, NUL-terminated.
const fn text<const N: usize>(bytes: &[u8]) -> [c_char; N] {
    assert!(bytes.len() < N, "room for the terminating NUL");
    let mut array = [0; N];
    let mut index = 0;
    while index < bytes.len() {
        array[index] = bytes[index] as c_char;
        index += 1;
    }
    array
}

/// The value of decimal digits.
const fn number(digits: &str) -> c_int {
    let digits = digits.as_bytes();
    let mut value = 0;
    let mut index = 0;
    while index < digits.len() {
        value = value * 10 + (digits[index] - b'0') as c_int;
        index += 1;
    }
    value
}

/// Open MPI's pointer to the component.
pub(crate) fn raw() -> *mut sys::mca_btl_base_component_t {
    mca_btl_ibex_component.0.get()
}

/// The addresses this process has published, in the order of its modules.
pub(crate) fn local_ports() -> Vec<PortAddress> {
    opened().ports.clone()
}

/// The modules in use.
pub(crate) fn modules() -> impl Iterator<Item = &'static Module> {
    // SAFETY: M1: in the table from init until its finalize, which comes after all else.
    MODULES.iter().filter_map(|place| unsafe { place.load(Ordering::Acquire).as_ref() })
}

/// Whether this process takes part in its job through ibex, or did until MPI was finalised.
pub(crate) fn has_opened_ports() -> bool {
    HAS_OPENED_PORTS.load(Ordering::Acquire)
}

/// Takes a module that is being finalized out of progress.
pub(crate) fn forget(module: *mut sys::mca_btl_base_module_t) {
    for place in &MODULES {
        // Open MPI has stopped calling progress by now; the exchange is for the threads' memory model alone.
        let _ = place.compare_exchange(module.cast(), null_mut(), Ordering::AcqRel, Ordering::Acquire);
    }
}

/// `mca_register_component_params`: the variables. In another Open MPI, or beside another ibex, nothing is registered, before any structure is shared
/// with it. That is no error here but in [`open`]: a component that was asked for by name and cannot be registered ends the
/// job (`mca_base_component_find.c`, `component_find_check`), one that cannot be opened does not.
unsafe extern "C" fn register() -> c_int {
    fence("registering the component", sys::OPAL_ERROR, || {
        // First, as another copy's component would be found under the name of this one's.
        if refusal::another_ibex().is_err() {
            return sys::OPAL_SUCCESS;
        }
        if let Err(refusal) = refusal::other_openmpi() {
            messages::other_openmpi(&refusal);
            return sys::OPAL_SUCCESS;
        }
        // SAFETY: the component's first field, which never moves.
        let version = unsafe { &raw mut (*raw()).btl_version };
        // SAFETY: this component is being registered.
        if let Err(code) = unsafe { variables::register(version) } {
            return code;
        }
        let base = TEMPLATE.0.get().cast::<sys::mca_btl_base_module_t>();
        // SAFETY: a static that only this thread uses now (see `Shared`).
        unsafe { base.write(template()) };
        // SAFETY: as above; Open MPI keeps pointers into both until the component is closed.
        unsafe { sys::mca_btl_base_param_register(version, base) }
    })
}

/// The template as the user's settings have left it.
fn settings() -> sys::mca_btl_base_module_t {
    // SAFETY: written by `register`, which Open MPI calls before it opens the component.
    unsafe { TEMPLATE.0.get().cast::<sys::mca_btl_base_module_t>().read() }
}

/// `mca_open_component`: starts from nothing, and checks the parameters.
unsafe extern "C" fn open() -> c_int {
    fence("opening the component", sys::OPAL_ERROR, || {
        // Not when it was registered: then it is not known yet which process is the first of its host.
        if let Err(refusal) = refusal::another_ibex() {
            messages::another_ibex(&refusal);
            return sys::OPAL_ERR_NOT_AVAILABLE;
        }
        guard::reset();
        DEFECT_REPORTED.store(false, Ordering::Relaxed);
        HAS_OPENED_PORTS.store(false, Ordering::Release);
        variables::forget_ports();
        MODULE_COUNT.store(0, Ordering::Release);
        *opened() = Opened { tunables: None, ports: Vec::new() };
        if refusal::other_openmpi().is_err() {
            // Said when it was registered.
            return sys::OPAL_ERR_NOT_AVAILABLE;
        }
        let settings = settings();
        let limits = Limits {
            max_send_size: settings.btl_max_send_size,
            eager_limit: settings.btl_eager_limit,
            rndv_eager_limit: settings.btl_rndv_eager_limit,
            rdma_pipeline_frag_size: settings.btl_rdma_pipeline_frag_size,
        };
        if let Err(error) = refusal::limits(&limits) {
            messages::parameter(&error);
            return sys::OPAL_ERR_NOT_AVAILABLE;
        }
        match variables::tunables() {
            Ok(tunables) => {
                opened().tunables = Some(tunables);
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
        variables::forget_ports();
        *opened() = Opened { tunables: None, ports: Vec::new() };
        sys::OPAL_SUCCESS
    })
}

/// `btl_init`: a module for each usable port. Open MPI frees the array. Null: ibex takes no part.
///
/// `enable_progress_threads` is true whether or not there are any, so it is not looked at.
unsafe extern "C" fn init(
    count: *mut c_int,
    _enable_progress_threads: bool,
    threads: bool,
) -> *mut *mut sys::mca_btl_base_module_t {
    fence("initialising the component", null_mut(), || {
        // SAFETY: the out parameter.
        unsafe { count.write(0) };
        let modules = open_ports(threads);
        if modules.is_empty() {
            return null_mut();
        }
        let bytes = modules.len() * size_of::<*mut sys::mca_btl_base_module_t>();
        // SAFETY: Open MPI gives the array to free().
        let array = unsafe { libc::malloc(bytes) }.cast::<*mut sys::mca_btl_base_module_t>();
        if array.is_null() {
            return null_mut();
        }
        for (index, module) in modules.into_iter().enumerate() {
            let module = Box::into_raw(module);
            MODULES[index].store(module, Ordering::Release);
            MODULE_COUNT.store(index + 1, Ordering::Release);
            // SAFETY: within the array just allocated.
            unsafe { array.add(index).write(module.cast()) };
        }
        HAS_OPENED_PORTS.store(true, Ordering::Release);
        // SAFETY: the out parameter.
        unsafe { count.write(MODULE_COUNT.load(Ordering::Relaxed) as c_int) };
        array
    })
}

/// Chooses, opens and publishes ports; says why where there is none.
#[allow(clippy::vec_box, reason = "a module never moves: Open MPI keeps its address")]
fn open_ports(threads: bool) -> Vec<Box<Module>> {
    let Some(tunables) = opened().tunables.clone() else {
        return Vec::new();
    };
    let survey = device::survey(&tunables);
    if tunables.verbose > 0 {
        survey.report.iter().for_each(|line| messages::verbose(line));
    }
    if survey.ports.is_empty() {
        // Who did not ask for ibex is not bothered on a machine without an adapter.
        if tunables.verbose > 0 || variables::asked_for_by_name() {
            messages::no_port(&survey.complaint());
        }
        return Vec::new();
    }
    let Some(me) = Process::me() else {
        return Vec::new();
    };
    let settings = settings();
    let mut modules = Vec::new();
    let mut entries = Vec::new();
    for choice in survey.ports.iter().take(MAX_PORTS) {
        let index = modules.len() as u8;
        let setup = Setup {
            index,
            me: modex::from_openmpi(me.name()),
            receive_size: settings.btl_max_send_size as u32,
            bounce_size: settings.btl_eager_limit.max(settings.btl_rndv_eager_limit) as u32,
            directory: Box::new(modex::Published),
        };
        match Port::open(choice, &tunables, setup) {
            Ok(port) => {
                let entry = port.entry();
                if let Some(warning) = port.warning() {
                    messages::port_warning(&me.host(), &port.attributes().place(), warning);
                }
                let Some(module) = Module::new(&settings, port, index, &tunables, threads) else {
                    messages::no_cache();
                    return Vec::new();
                };
                if let Err(error) = module.reserve() {
                    messages::port_not_opened(&me.host(), &error);
                    module.end();
                    continue;
                }
                entries.push(entry);
                modules.push(module);
            }
            Err(error) => messages::port_not_opened(&me.host(), &error),
        }
    }
    if modules.is_empty() {
        return modules;
    }
    if let Err(code) = modex::publish(&entries) {
        messages::not_published(code);
        return Vec::new();
    }
    opened().ports = entries.iter().map(|entry| entry.address).collect();
    modules.iter().filter_map(|module| module.counters()).for_each(variables::show_port);
    modules
}

/// `btl_progress`: moves every port on. Returns the number of events.
unsafe extern "C" fn component_progress() -> c_int {
    fence("progress", 0, || {
        if guard::broken() {
            return defect();
        }
        if events::is_idle() { progress_all::<false>() } else { progress_watched() }
    })
}

#[inline]
fn progress_all<const WATCHED: bool>() -> c_int {
    let mut count = 0;
    // Acquire: what init wrote to a module before it published it.
    for place in &MODULES[..MODULE_COUNT.load(Ordering::Acquire)] {
        let module = place.load(Ordering::Acquire);
        if !module.is_null() {
            // SAFETY: M1: in the table from init until its finalize.
            count += progress::progress::<WATCHED>(unsafe { &*module });
        }
    }
    count
}

/// Progress while a tool listens. What the calls before have seen and not shown, so that who waited for it went on, is shown first. Buffers
/// are delivered when there is nothing else to do; if there always is, at every [`BUSY`]th call.
#[cold]
#[inline(never)]
fn progress_watched() -> c_int {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    watch::show_arrived();
    events::deliver_due(watch::SAFETY);
    let count = progress_all::<true>();
    let calls = CALLS.load(Ordering::Relaxed).wrapping_add(1);
    CALLS.store(calls, Ordering::Relaxed);
    if count == 0 || calls.is_multiple_of(BUSY) || events::is_nearly_full() {
        watch::show_arrived();
        events::progress(watch::SAFETY);
    }
    count
}

/// After a panic nothing is trusted any more: each port is reported as failed, once.
#[cold]
fn defect() -> c_int {
    if !DEFECT_REPORTED.swap(true, Ordering::Relaxed) {
        for place in &MODULES {
            let module = place.load(Ordering::Acquire);
            if !module.is_null() {
                // SAFETY: M1, as in progress.
                progress::report_defect(unsafe { &*module });
            }
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_component_says_what_open_mpi_checks_before_it_loads_it() {
        // SAFETY: a static that no other test writes.
        let component = unsafe { raw().read() };
        let version = component.btl_version;
        assert_eq!((version.mca_major_version, version.mca_minor_version), (2, 1));
        assert_eq!(
            (version.mca_type_major_version, version.mca_type_minor_version, version.mca_type_release_version),
            (3, 1, 0)
        );
        assert_eq!(version.mca_type_name[..4], text::<4>(b"btl"));
        assert_eq!(version.mca_component_name[..5], text::<5>(b"ibex"));
    }

    #[test]
    fn digits_are_read_as_the_number_they_are() {
        assert_eq!((number("0"), number("7"), number("120")), (0, 7, 120));
    }
}
