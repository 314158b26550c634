// SPDX-License-Identifier: MIT OR Apache-2.0
//! The modules of the process, one for each port the BTL uses.
//!
//! Filled by `init`, in order; a module leaves when it is finalized, after all else. Grade: hot ([`all`], for
//! progress). Threads: any.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use ibex_ffi::openmpi::sys;

use super::module::Module;
use crate::runtime::ports::MAX_PORTS;

static MODULES: [AtomicPtr<Module>; MAX_PORTS] = [const { AtomicPtr::new(null_mut()) }; MAX_PORTS];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The component is opened: there is none.
pub(crate) fn start_anew() {
    COUNT.store(0, Ordering::Release);
}

/// Takes up a module. Returns Open MPI's pointer to it.
pub(crate) fn add(module: Box<Module>) -> *mut sys::mca_btl_base_module_t {
    let index = count();
    let module = Box::into_raw(module);
    MODULES[index].store(module, Ordering::Release);
    COUNT.store(index + 1, Ordering::Release);
    module.cast()
}

fn count() -> usize {
    // Acquire: what init wrote to a module before it published it.
    COUNT.load(Ordering::Acquire)
}

/// Whether there has been more than one.
pub(crate) fn are_several() -> bool {
    count() > 1
}

/// The modules in use.
#[inline]
pub(crate) fn all() -> impl Iterator<Item = &'static Module> {
    let used = &MODULES[..count()];
    // SAFETY: M1: in the table from init until its finalize, which comes after all else.
    used.iter().filter_map(|place| unsafe { place.load(Ordering::Acquire).as_ref() })
}

/// Takes a module back that is being finalized.
///
/// # Safety
/// M1, and Open MPI's last call for the module: nobody uses it any more.
pub(crate) unsafe fn remove(module: *mut sys::mca_btl_base_module_t) -> Box<Module> {
    for place in &MODULES {
        // Open MPI has stopped calling progress by now; the exchange is for the threads' memory model alone.
        let _ = place.compare_exchange(module.cast(), null_mut(), Ordering::AcqRel, Ordering::Acquire);
    }
    // SAFETY: leaked from a box by `add`; taken back once, as the caller says that this is the last call for it.
    unsafe { Box::from_raw(module.cast::<Module>()) }
}
