// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hooks: functions that are called instead of those of the C library that replace or unmap pages, tell the ranges,
//! and do the call, by the hook of another library if that was in place before.
//!
//! Patched once per process, and never restored: what is above may have saved the jump to a hook. Called by `mod.rs`.
//! Grade: setup. Threads: any; malloc may call a hook with its lock held, so hooks neither allocate nor lock, except
//! that of `shmdt`. Tests: in `mod.rs`.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::patch::{self, First, Function};
use super::{RANGES, calls};

/// A hook.
struct Hook {
    name: &'static CStr,
    /// The function to call instead, of the same type.
    instead: *const c_void,
    /// The hook of another library that does the call; 0: the kernel does.
    next: &'static AtomicUsize,
}

static FUNCTIONS: OnceLock<Result<Vec<Function>, String>> = OnceLock::new();

/// The lock of those who patch.
static PATCHING: Mutex<()> = Mutex::new(());

/// The C library's end of the heap.
static BREAK: OnceLock<&'static AtomicPtr<c_void>> = OnceLock::new();

/// Whether all calls reach the hooks. Loads a word for each.
#[inline]
pub(super) fn are_in_place() -> bool {
    matches!(FUNCTIONS.get(), Some(Ok(functions)) if functions.iter().all(Function::is_patched))
}

/// Patches each function whose calls do not reach its hook: the first time, and after others have patched it, or have
/// restored what they found.
pub(super) fn put_in_place() -> Result<(), String> {
    let _lock = PATCHING.lock().unwrap_or_else(PoisonError::into_inner);
    let hooks = all();
    let functions = FUNCTIONS.get_or_init(|| prepare(&hooks)).as_ref().map_err(Clone::clone)?;
    for (hook, function) in hooks.iter().zip(functions).filter(|(_, function)| !function.is_patched()) {
        match function.first() {
            First::Original => hook.next.store(0, Ordering::Release),
            First::Hook(next) => {
                patch::keep(next);
                hook.next.store(next, Ordering::Release);
            }
            First::Ibex => return Err("another copy of ibex watches the memory of this process".to_owned()),
        }
        function.patch().map_err(|why| format!("{} cannot be patched: {why}", hook.name.to_string_lossy()))?;
    }
    Ok(())
}

fn prepare(hooks: &[Hook]) -> Result<Vec<Function>, String> {
    let end = patch::library_symbol(c"__curbrk").ok_or("the C library does not show where the heap ends")?;
    // SAFETY: the C library's variable of this type, which lives as long as the process; hooks of other libraries
    // access it as well, under malloc's lock.
    let _ = BREAK.set(unsafe { AtomicPtr::from_ptr(end.cast()) });
    let found = hooks.iter().map(|hook| Ok((patch::find(hook.name)?, hook.instead)));
    patch::prepare(&found.collect::<Result<Vec<_>, String>>()?)
}

fn tell(start: *mut c_void, bytes: usize) {
    RANGES.tell(start.addr(), bytes);
}

fn all() -> [Hook; 8] {
    let hook = |name, instead, next| Hook { name, instead, next };
    [
        hook(c"munmap", munmap as *const c_void, &MUNMAP),
        hook(c"mmap", mmap as *const c_void, &MMAP),
        hook(c"mremap", mremap as *const c_void, &MREMAP),
        hook(c"madvise", madvise as *const c_void, &MADVISE),
        hook(c"brk", brk as *const c_void, &BRK),
        // It calls brk, unless another library has patched it.
        hook(c"sbrk", sbrk as *const c_void, &SBRK),
        hook(c"shmat", shmat as *const c_void, &SHMAT),
        hook(c"shmdt", shmdt as *const c_void, &SHMDT),
    ]
}

static MUNMAP: AtomicUsize = AtomicUsize::new(0);
static MMAP: AtomicUsize = AtomicUsize::new(0);
static MREMAP: AtomicUsize = AtomicUsize::new(0);
static MADVISE: AtomicUsize = AtomicUsize::new(0);
static BRK: AtomicUsize = AtomicUsize::new(0);
static SBRK: AtomicUsize = AtomicUsize::new(0);
static SHMAT: AtomicUsize = AtomicUsize::new(0);
static SHMDT: AtomicUsize = AtomicUsize::new(0);

/// Returns the hook of another library that does the call.
///
/// # Safety
/// `F` is the type of the function that is hooked.
unsafe fn next<F: Copy>(of: &AtomicUsize) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<usize>(), "a pointer to a function") };
    // Acquire: pairs with `put_in_place`, which has found it as a jump in that function.
    let hook = of.load(Ordering::Acquire);
    // SAFETY: the target of a jump in the function, so code of that type; its library stays loaded.
    (hook != 0).then(|| unsafe { std::mem::transmute_copy(&hook) })
}

unsafe extern "C" fn munmap(start: *mut c_void, bytes: usize) -> c_int {
    tell(start, bytes);
    // SAFETY: the function's type, and the call that the caller made; so in all hooks.
    unsafe {
        match next::<unsafe extern "C" fn(*mut c_void, usize) -> c_int>(&MUNMAP) {
            Some(next) => next(start, bytes),
            None => libc::syscall(libc::SYS_munmap, start, bytes) as c_int,
        }
    }
}

type Mmap = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, libc::off_t) -> *mut c_void;

unsafe extern "C" fn mmap(
    start: *mut c_void,
    bytes: usize,
    rights: c_int,
    flags: c_int,
    file: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    calls::by_mmap(start, bytes, flags, tell);
    // SAFETY: as above.
    unsafe {
        match next::<Mmap>(&MMAP) {
            Some(next) => next(start, bytes, rights, flags, file, offset),
            None => libc::syscall(libc::SYS_mmap, start, bytes, rights, flags, file, offset) as *mut c_void,
        }
    }
}

unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_size: usize,
    new_size: usize,
    flags: c_int,
    target: *mut c_void,
) -> *mut c_void {
    calls::by_mremap((old, old_size), new_size, (flags, target), tell);
    // SAFETY: as above.
    unsafe {
        match next::<unsafe extern "C" fn(*mut c_void, usize, usize, c_int, ...) -> *mut c_void>(&MREMAP) {
            Some(next) => next(old, old_size, new_size, flags, target),
            None => libc::syscall(libc::SYS_mremap, old, old_size, new_size, flags, target) as *mut c_void,
        }
    }
}

unsafe extern "C" fn madvise(start: *mut c_void, bytes: usize, advice: c_int) -> c_int {
    calls::by_madvise(start, bytes, advice, tell);
    // SAFETY: as above.
    unsafe {
        match next::<unsafe extern "C" fn(*mut c_void, usize, c_int) -> c_int>(&MADVISE) {
            Some(next) => next(start, bytes, advice),
            None => libc::syscall(libc::SYS_madvise, start, bytes, advice) as c_int,
        }
    }
}

/// Returns the end of the heap as the C library knows it; null before its first use.
fn heap_end() -> *mut c_void {
    BREAK.get().map_or(std::ptr::null_mut(), |end| end.load(Ordering::Relaxed))
}

unsafe extern "C" fn brk(end: *mut c_void) -> c_int {
    let before = heap_end();
    if end < before {
        tell(end, before.addr() - end.addr());
    }
    // SAFETY: as above.
    if let Some(next) = unsafe { next::<unsafe extern "C" fn(*mut c_void) -> c_int>(&BRK) } {
        // SAFETY: as above.
        return unsafe { next(end) };
    }
    // SAFETY: as above. The kernel answers with the end that the heap has.
    let after = unsafe { libc::syscall(libc::SYS_brk, end) } as *mut c_void;
    if let Some(known) = BREAK.get() {
        known.store(after, Ordering::Relaxed);
    }
    if after >= end { 0 } else { no_memory() }
}

unsafe extern "C" fn sbrk(increment: isize) -> *mut c_void {
    let before = heap_end();
    if increment < 0 {
        tell(before.wrapping_byte_offset(increment), increment.unsigned_abs());
    }
    // SAFETY: as above.
    if let Some(next) = unsafe { next::<unsafe extern "C" fn(isize) -> *mut c_void>(&SBRK) } {
        // SAFETY: as above.
        return unsafe { next(increment) };
    }
    let failed = std::ptr::without_provenance_mut(usize::MAX);
    // SAFETY: a question, which also tells the C library where the heap ends.
    if before.is_null() && unsafe { libc::brk(before) } < 0 {
        return failed;
    }
    let before = heap_end();
    if increment == 0 {
        return before;
    }
    let Some(end) = before.addr().checked_add_signed(increment) else {
        no_memory();
        return failed;
    };
    // SAFETY: what sbrk does, by the function that another library may have patched.
    if unsafe { libc::brk(before.with_addr(end)) } < 0 { failed } else { before }
}

/// Sets `errno` as a failed `brk` does.
fn no_memory() -> c_int {
    // SAFETY: this thread's variable.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    -1
}

unsafe extern "C" fn shmat(segment: c_int, start: *const c_void, flags: c_int) -> *mut c_void {
    calls::by_shmat(segment, start, flags, tell);
    // SAFETY: as above.
    unsafe {
        match next::<unsafe extern "C" fn(c_int, *const c_void, c_int) -> *mut c_void>(&SHMAT) {
            Some(next) => next(segment, start, flags),
            None => libc::syscall(libc::SYS_shmat, segment, start, flags) as *mut c_void,
        }
    }
}

unsafe extern "C" fn shmdt(segment: *const c_void) -> c_int {
    calls::by_shmdt(segment, tell);
    // SAFETY: as above.
    unsafe {
        match next::<unsafe extern "C" fn(*const c_void) -> c_int>(&SHMDT) {
            Some(next) => next(segment),
            None => libc::syscall(libc::SYS_shmdt, segment) as c_int,
        }
    }
}
