// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the user has set of the BTL: the fields of a module that Open MPI registers as variables, and ibex's own
//! parameters.
//!
//! Written when the component is registered and opened, read when it is initialised. Grade: setup. Threads: one.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::tunables::Tunables;
use ibex_ffi::openmpi::{sys, variable};

use super::limits::{Limits, Set};

/// The fields of a module as the user's settings leave them: Open MPI keeps pointers into it.
struct Template(UnsafeCell<MaybeUninit<sys::mca_btl_base_module_t>>);

// SAFETY: written by Open MPI while it registers and read when the component is opened and initialised; all of it
// happens in the one thread that initialises MPI (or MPI_T, under MPI_T's own lock).
unsafe impl Sync for Template {}

static TEMPLATE: Template = Template(UnsafeCell::new(MaybeUninit::uninit()));

/// The parameters, from open to close.
static TUNABLES: Mutex<Option<Tunables>> = Mutex::new(None);

/// Has Open MPI register the fields of a module that it gives every BTL, with `template` as their defaults.
///
/// # Safety
/// `version` is of the component that is being registered.
pub(crate) unsafe fn register(version: *mut sys::mca_base_component_t, template: &sys::mca_btl_base_module_t) -> c_int {
    let base = TEMPLATE.0.get().cast::<sys::mca_btl_base_module_t>();
    // SAFETY: a static that only this thread uses now (see `Template`).
    unsafe { base.write(*template) };
    // SAFETY: the caller's component is being registered; Open MPI keeps pointers into both until it is closed.
    unsafe { sys::mca_btl_base_param_register(version, base) }
}

/// The template as the user's settings have left it.
pub(crate) fn module() -> sys::mca_btl_base_module_t {
    // SAFETY: written by `register`, which Open MPI has called before it opens the component.
    unsafe { TEMPLATE.0.get().cast::<sys::mca_btl_base_module_t>().read() }
}

/// Has the limits among them that the user has not set follow those that he has, and returns them all. `defaults` is the
/// template that was registered.
///
/// # Safety
/// The component is being opened.
pub(crate) unsafe fn follow(defaults: &sys::mca_btl_base_module_t) -> Limits {
    let module = module();
    let set = |name, value| variable::is_set(c"btl", Some(c"ibex"), Some(name)).then_some(value);
    let set = Set {
        max_send_size: set(c"max_send_size", module.btl_max_send_size),
        eager_limit: set(c"eager_limit", module.btl_eager_limit),
        rndv_eager_limit: set(c"rndv_eager_limit", module.btl_rndv_eager_limit),
    };
    let limits = Limits {
        max_send_size: defaults.btl_max_send_size,
        eager_limit: defaults.btl_eager_limit,
        rndv_eager_limit: defaults.btl_rndv_eager_limit,
        rdma_pipeline_frag_size: module.btl_rdma_pipeline_frag_size,
    }
    .following(set);
    // SAFETY: filled by `register`; the component is being opened, so this thread alone uses it (see `Template`).
    let base = unsafe { &mut *TEMPLATE.0.get().cast::<sys::mca_btl_base_module_t>() };
    base.btl_max_send_size = limits.max_send_size;
    base.btl_eager_limit = limits.eager_limit;
    base.btl_rndv_eager_limit = limits.rndv_eager_limit;
    limits
}

/// Keeps the parameters for [`tunables`]; `None` forgets them.
pub(crate) fn set_tunables(tunables: Option<Tunables>) {
    *kept() = tunables;
}

/// The parameters; `None` where the component is not open.
pub(crate) fn tunables() -> Option<Tunables> {
    kept().clone()
}

fn kept() -> MutexGuard<'static, Option<Tunables>> {
    TUNABLES.lock().unwrap_or_else(PoisonError::into_inner)
}
