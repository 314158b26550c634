// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that goes where UCX' hooks see it and Open MPI's do not.
//!
//! Open MPI's caches keep a registration until its memory hooks tell them that the memory is gone: it patches `munmap`, `brk`
//! and others (`opal/mca/memory/patcher`). UCX does the same as soon as its library is loaded, be it by a component of
//! Open MPI that is not used, or because libmpi is linked with it (Debian 13). It patches `sbrk` too, by which malloc
//! shrinks the heap, and what is patched last hides what was patched first. A registration that is then kept has pages which the
//! process no longer has: messages would carry what once was there. So ibex listens to UCX (`ucm_set_event_handler` of
//! `ucm/api/ucm.h`), and hands on to Open MPI what it hears.
//!
//! Called by `cache`. Grade: setup; [`listen`] is one load once there is nothing more to do. Threads: any. Tests:
//! `hw-tests/mpi/freed_memory.c`.

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::sys;

/// Where UCX has its hooks, in all its releases.
const LIBRARY: &std::ffi::CStr = c"libucm.so.0";
/// `UCM_EVENT_VM_UNMAPPED`: however it goes, and before it does.
const UNMAPPED: c_int = 1 << 17;
/// `UCM_EVENT_FLAG_NO_INSTALL`: only if UCX itself has patched something.
const NO_INSTALL: c_int = 1 << 24;
/// Below 0: before the call itself.
const PRIORITY: c_int = -1;

/// The member `vm_unmapped` of `ucm_event_t`.
#[repr(C)]
struct Range {
    address: *mut c_void,
    size: usize,
}

type Handler = unsafe extern "C" fn(c_int, *mut Range, *mut c_void);
type SetHandler = unsafe extern "C" fn(c_int, c_int, Handler, *mut c_void) -> c_int;
type UnsetHandler = unsafe extern "C" fn(c_int, Handler, *mut c_void);

/// Whether UCX tells ibex.
static LISTENS: AtomicBool = AtomicBool::new(false);
static STATE: Mutex<State> = Mutex::new(State { caches: 0, ucx: None });

struct State {
    /// Caches that there are. With the last one the handler goes, as ibex may be unloaded then.
    caches: usize,
    /// Set while UCX has the handler.
    ucx: Option<Ucx>,
}

/// UCX' library, held while it has the handler.
struct Ucx {
    library: NonNull<c_void>,
    unset: UnsetHandler,
}

// SAFETY: a handle of the dynamic linker and a function of a library; both may be used by any thread.
unsafe impl Send for Ucx {}

/// There is one more cache.
pub(super) fn cache_made() {
    STATE.lock().unwrap_or_else(PoisonError::into_inner).caches += 1;
    listen();
}

/// There is one cache less, and nothing more to be told to it.
pub(super) fn cache_gone() {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    state.caches -= 1;
    if state.caches > 0 {
        return;
    }
    LISTENS.store(false, Ordering::Relaxed);
    if let Some(Ucx { library, unset }) = state.ucx.take() {
        // SAFETY: UCX' own function, with what its counterpart was given. It waits for handlers that run.
        unsafe { unset(UNMAPPED, unmapped, null_mut()) };
        // SAFETY: opened by `Ucx::find`, once.
        unsafe { libc::dlclose(library.as_ptr()) };
    }
}

/// Listens from now on if UCX has been loaded since. To be called before memory is registered.
pub fn listen() {
    if !LISTENS.load(Ordering::Relaxed) {
        listen_if_loaded();
    }
}

#[cold]
fn listen_if_loaded() {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    if state.ucx.is_none() && state.caches > 0 {
        state.ucx = Ucx::find();
        LISTENS.store(state.ucx.is_some(), Ordering::Relaxed);
    }
}

impl Ucx {
    /// UCX where it is loaded, with the handler set.
    fn find() -> Option<Ucx> {
        // SAFETY: a terminated name; nothing is loaded by this.
        let library = NonNull::new(unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) })?;
        // SAFETY: a terminated name, of an open library.
        let symbol = |name: &std::ffi::CStr| NonNull::new(unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) });
        let found = symbol(c"ucm_set_event_handler").zip(symbol(c"ucm_unset_event_handler"));
        let is_set = found.filter(|(set, _)| {
            // SAFETY: the function of that name has this type in every release (ucm/api/ucm.h).
            let set: SetHandler = unsafe { transmute(set.as_ptr()) };
            // SAFETY: the handler lives until `cache_gone` takes it away.
            unsafe { set(UNMAPPED | NO_INSTALL, PRIORITY, unmapped, null_mut()) == 0 }
        });
        let Some((_, unset)) = is_set else {
            // SAFETY: opened above.
            unsafe { libc::dlclose(library.as_ptr()) };
            return None;
        };
        // SAFETY: as for the other one.
        Some(Ucx { library, unset: unsafe { transmute::<*mut c_void, UnsetHandler>(unset.as_ptr()) } })
    }
}

/// UCX' handler, called where malloc may hold its lock: nothing here allocates.
unsafe extern "C" fn unmapped(_event: c_int, range: *mut Range, _argument: *mut c_void) {
    // SAFETY: UCX gives the event that the handler was set for, alive during this call.
    let (address, size) = unsafe { ((*range).address, (*range).size) };
    // SAFETY: as Open MPI's own patches call it; it asks each cache to let go of what is registered there.
    unsafe { sys::opal_mem_hooks_release_hook(address, size, true) };
}
