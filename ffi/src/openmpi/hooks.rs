// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hooks for unmapped pages that Open MPI's hooks do not report, so that its caches would keep stale registrations: the
//! target of `mremap` (`MREMAP_FIXED`), some advice of `madvise`, and all but the first part of a shared memory segment
//! in several parts (`shmdt`). A patch hides the earlier patches of a function, Open MPI's too, so these hooks report
//! all that Open MPI's would (docs/registered-memory.md). Called by `unmapped`. Grade: setup. Threads: any; malloc may
//! call a hook with its lock held, so nothing allocates, except in `shmdt`, which malloc does not call. Hooks stay as
//! long as Open MPI's; their library is never unmapped. Tests: `hw-tests/mpi/freed_memory.c`.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{sys, unmapped};
use crate::monitor::calls::{self, PAGE};

struct Hook {
    name: &'static CStr,
    /// The function to call instead, of the same type.
    instead: *const c_void,
    /// Calls the function without effect.
    probe: fn(),
    counts: &'static Counts,
}

struct Counts {
    seen: AtomicUsize,
    patched: AtomicUsize,
}

/// Largest number of times that a function is patched: a preloaded library may keep calls from reaching the hook.
const TIMES: usize = 1024;

static MREMAP: Counts = Counts::new();
static MADVISE: Counts = Counts::new();
static SHMDT: Counts = Counts::new();

impl Counts {
    const fn new() -> Self {
        Self { seen: AtomicUsize::new(0), patched: AtomicUsize::new(0) }
    }

    fn seen(&self) -> usize {
        self.seen.load(Ordering::Relaxed)
    }

    fn see(&self) {
        self.seen.fetch_add(1, Ordering::Relaxed);
    }
}

fn all() -> [Hook; 3] {
    [
        Hook { name: c"mremap", instead: mremap as *const c_void, probe: probe_mremap, counts: &MREMAP },
        Hook { name: c"madvise", instead: madvise as *const c_void, probe: probe_madvise, counts: &MADVISE },
        Hook { name: c"shmdt", instead: shmdt as *const c_void, probe: probe_shmdt, counts: &SHMDT },
    ]
}

/// Patches each function whose calls do not reach its hook: the first time, and after other libraries have patched it.
/// If Open MPI patches nothing (cache off, or no hooks on this processor), this patches nothing either.
pub(super) fn put_in_place() {
    for hook in all() {
        let before = hook.counts.seen();
        (hook.probe)();
        let is_hidden = hook.counts.seen() == before;
        if is_hidden && hook.counts.patched.fetch_add(1, Ordering::Relaxed) < TIMES {
            // SAFETY: the hook has the type of the function of this name, and is never unmapped.
            let _ = unsafe { sys::ibex_patch(hook.name.as_ptr(), hook.instead) };
        }
    }
}

fn probe_mremap() {
    // UCX may report the range to its caches: a page that is never mapped; an empty range would mean all memory.
    // SAFETY: the kernel refuses a new size of 0.
    let _ = unsafe { libc::mremap(null_mut(), PAGE, 0, 0) };
}

fn probe_madvise() {
    // SAFETY: a call on no bytes has no effect.
    let _ = unsafe { libc::madvise(null_mut(), 0, libc::MADV_NORMAL) };
}

fn probe_shmdt() {
    // SAFETY: no segment begins within a page, so the kernel refuses the call.
    let _ = unsafe { libc::shmdt(null::<c_void>().wrapping_byte_add(1)) };
}

/// Called instead of `mremap`.
unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_size: usize,
    new_size: usize,
    flags: c_int,
    target: *mut c_void,
) -> *mut c_void {
    MREMAP.see();
    calls::by_mremap((old, old_size), new_size, (flags, target), unmapped::tell);
    // SAFETY: the call that the caller made.
    unsafe { libc::syscall(libc::SYS_mremap, old, old_size, new_size, flags, target) as *mut c_void }
}

unsafe extern "C" fn madvise(start: *mut c_void, size: usize, advice: c_int) -> c_int {
    MADVISE.see();
    calls::by_madvise(start, size, advice, unmapped::tell);
    // SAFETY: the call that the caller made.
    unsafe { libc::syscall(libc::SYS_madvise, start, size, advice) as c_int }
}

unsafe extern "C" fn shmdt(segment: *const c_void) -> c_int {
    SHMDT.see();
    calls::by_shmdt(segment, unmapped::tell);
    // SAFETY: the call that the caller made.
    unsafe { libc::syscall(libc::SYS_shmdt, segment) as c_int }
}
