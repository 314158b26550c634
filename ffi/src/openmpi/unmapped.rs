// SPDX-License-Identifier: MIT OR Apache-2.0
//! Notifies Open MPI of unmapped memory that its own hooks miss.
//!
//! Open MPI's caches keep a registration until its memory hooks, patches of `munmap`, `brk` and others
//! (`opal/mca/memory/patcher`), report the memory unmapped. UCX, if loaded, patches the same functions, and `sbrk`, by
//! which malloc shrinks the heap; the last patch hides earlier ones. A stale registration refers to pages that the
//! process no longer has, so messages would have old data. So ibex subscribes to UCX (`ucm_set_event_handler` of
//! `ucm/api/ucm.h`), and forwards its events to Open MPI. `hooks` reports calls that Open MPI's hooks miss. Called by
//! `cache`, by `hooks`, and by plugin-abi's `memory` before it registers anything. Grade: setup; [`listen`] looks for
//! UCX until it is loaded, then makes system calls without effect. Threads: any. Tests: `hw-tests/mpi/freed_memory.c`.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use libloading::os::unix::{Library, RTLD_LAZY};

use super::{hooks, sys};

/// The library with UCX' hooks, in all its releases.
const LIBRARY: &str = "libucm.so.0";
/// `UCM_EVENT_VM_UNMAPPED`: raised before memory is unmapped in any way.
const UNMAPPED: c_int = 1 << 17;
/// `UCM_EVENT_FLAG_NO_INSTALL`: the handler causes no patches; it gets events if UCX patches for itself.
const NO_INSTALL: c_int = 1 << 24;
/// Handlers with a priority below 0 run before the call.
const PRIORITY: c_int = -1;

/// The member `vm_unmapped` of `ucm_event_t`.
#[repr(C)]
struct Range {
    address: *mut c_void,
    size: usize,
}

const SET: &[u8] = b"ucm_set_event_handler\0";
const UNSET: &[u8] = b"ucm_unset_event_handler\0";
const TELL: &[u8] = b"ucm_vm_munmap\0";

type Handler = unsafe extern "C" fn(c_int, *mut Range, *mut c_void);
type SetHandler = unsafe extern "C" fn(c_int, c_int, Handler, *mut c_void) -> c_int;
type UnsetHandler = unsafe extern "C" fn(c_int, Handler, *mut c_void);
type Tell = unsafe extern "C" fn(*mut c_void, usize);

/// The address of UCX' [`Tell`] while UCX has the handler; else 0.
static UCX: AtomicUsize = AtomicUsize::new(0);
static STATE: Mutex<State> = Mutex::new(State { caches: 0, unset: None });

struct State {
    /// Number of open caches. Closing the last one removes the handler, because ibex may be closed then.
    caches: usize,
    unset: Option<UnsetHandler>,
}

pub(super) fn cache_made() {
    STATE.lock().unwrap_or_else(PoisonError::into_inner).caches += 1;
    hooks::put_in_place();
    listen_if_loaded();
}

pub(super) fn cache_gone() {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    state.caches -= 1;
    if state.caches > 0 {
        return;
    }
    UCX.store(0, Ordering::Release);
    if let Some(unset) = state.unset.take() {
        // SAFETY: the arguments with which it was set. UCX waits for running handlers, and stays loaded.
        unsafe { unset(UNMAPPED, unmapped, null_mut()) };
    }
}

/// Sets the handler if UCX has been loaded since, and restores hooks that UCX has hidden. Called before memory is
/// registered.
pub fn listen() {
    if UCX.load(Ordering::Relaxed) == 0 {
        listen_if_loaded();
    } else {
        hooks::put_in_place();
    }
}

#[cold]
fn listen_if_loaded() {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    if state.unset.is_some() || state.caches == 0 {
        return;
    }
    let Some((unset, tell)) = with_handler() else { return };
    state.unset = Some(unset);
    drop(state);
    UCX.store(tell as usize, Ordering::Release);
    hooks::put_in_place();
}

fn with_handler() -> Option<(UnsetHandler, Tell)> {
    // SAFETY: the flag prevents loading, so no code of the library runs.
    let ucx = unsafe { Library::open(Some(LIBRARY), RTLD_LAZY | libc::RTLD_NOLOAD) }.ok()?;
    // SAFETY: the function of that name has this type in every release (ucm/api/ucm.h).
    let set = *unsafe { ucx.get::<SetHandler>(SET) }.ok()?;
    // SAFETY: the function of that name has this type in every release (ucm/api/ucm.h).
    let unset = *unsafe { ucx.get::<UnsetHandler>(UNSET) }.ok()?;
    // SAFETY: the function of that name has this type in every release (ucm/api/ucm.h).
    let tell = *unsafe { ucx.get::<Tell>(TELL) }.ok()?;
    // SAFETY: the handler lives until `cache_gone` removes it.
    let code = unsafe { set(UNMAPPED | NO_INSTALL, PRIORITY, unmapped, null_mut()) };
    // Keeps UCX loaded: its patches jump into it, and `tell` calls it at any time.
    std::mem::forget(ucx);
    (code == 0).then_some((unset, tell))
}

/// Reports that the pages of a range will be unmapped, also to UCX, whose own hook may be hidden. Allocates nothing.
pub(super) fn tell(address: *mut c_void, size: usize) {
    match UCX.load(Ordering::Acquire) {
        0 => release(address, size),
        ucx => {
            // SAFETY: the address of a function of this type in UCX, which stays loaded.
            let tell = unsafe { std::mem::transmute::<usize, Tell>(ucx) };
            // SAFETY: it passes the range to each handler, `unmapped` among them; they only compare it.
            unsafe { tell(address, size) };
        }
    }
}

/// UCX' handler. Allocates nothing, because malloc may hold its lock.
unsafe extern "C" fn unmapped(_event: c_int, range: *mut Range, _argument: *mut c_void) {
    // Open MPI's components for UCX forward events to UCX, which would call this again without end.
    let Some(_forwarding) = Forwarding::begin() else { return };
    // SAFETY: UCX passes an event of the type that the handler was set for, alive during this call.
    let (address, size) = unsafe { ((*range).address, (*range).size) };
    release(address, size);
}

fn release(address: *mut c_void, size: usize) {
    // SAFETY: Open MPI's own patches call it in this way; it only compares the range.
    unsafe { sys::opal_mem_hooks_release_hook(address, size, true) };
}

/// The threads (`pthread_self`) that forward an event now; 0: none. A thread-local would allocate at its first use.
static FORWARDING: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

struct Forwarding(&'static AtomicUsize);

impl Forwarding {
    /// `None` if this thread forwards already. Each thread searches only for itself, so all is relaxed.
    fn begin() -> Option<Self> {
        // SAFETY: the call has no arguments, and always succeeds.
        let me = unsafe { libc::pthread_self() } as usize;
        if FORWARDING.iter().any(|place| place.load(Ordering::Relaxed) == me) {
            return None;
        }
        let take = |place: &&AtomicUsize| place.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        loop {
            if let Some(place) = FORWARDING.iter().find(take) {
                return Some(Self(place));
            }
            std::hint::spin_loop();
        }
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_forwards_does_not_begin_again_and_another_one_does() {
        let first = Forwarding::begin().expect("this thread does not forward");
        assert!(Forwarding::begin().is_none());
        let others = std::thread::spawn(|| Forwarding::begin().is_some());
        assert!(others.join().expect("it ends"));
        drop(first);
        assert!(Forwarding::begin().is_some());
    }
}
