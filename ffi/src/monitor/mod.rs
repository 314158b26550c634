// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory monitor: tells a registration cache which memory a program has given back to the kernel, or has replaced
//! (docs/registered-memory.md), so that no registration outlives its pages.
//!
//! `hooks` has what is called instead of the C library's functions, `patch` puts it in place, `ranges` keeps what was
//! told, and `calls` knows what each call changes, also for the hooks beside Open MPI's (`openmpi/hooks.rs`). Called by
//! the provider. Grade: setup;
//! [`Monitor::changes`] pending. Threads: any. Tests: below, and `hw-tests/libfabric/fi_freed_memory.c`.

pub(crate) mod calls;
mod hooks;
mod patch;
mod ranges;

use ranges::{Cursor, Ranges};

pub use ranges::Changed;

/// What this process has changed.
static RANGES: Ranges = Ranges::new();

/// What a cache knows of the changes.
#[derive(Debug)]
pub struct Monitor(Cursor);

impl Monitor {
    /// Begins to watch the memory of the process.
    ///
    /// # Errors
    /// Why its calls cannot be watched.
    ///
    /// # Safety
    /// The library that has this code is never unloaded: the C library's functions jump into it from now on.
    pub unsafe fn start() -> Result<Self, String> {
        hooks::put_in_place()?;
        let mut cursor = RANGES.cursor();
        // SAFETY: no bytes change; the hook tells it nevertheless.
        unsafe { libc::madvise(std::ptr::null_mut(), 0, libc::MADV_DONTNEED) };
        let mut is_told = false;
        RANGES.read(&mut cursor, |_| is_told = true);
        if is_told { Ok(Monitor(cursor)) } else { Err("the C library's functions do not run the patches".to_owned()) }
    }

    /// Calls `each` with what has changed since the last call. A call of the C library is told before it is made, and
    /// memory that was given back and got again is told before the program has it again.
    pub fn changes(&mut self, mut each: impl FnMut(Changed)) {
        if !hooks::are_in_place() {
            // Another library has put its own hooks over them, or has taken them away with its own: whatever has
            // changed since then is unknown. If they cannot be put back, this is so at each call.
            let _ = hooks::put_in_place();
            each(Changed::Any);
        }
        RANGES.read(&mut self.0, each);
    }
}

#[cfg(all(test, not(miri), any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use super::*;
    use calls::PAGE;
    use std::ffi::{c_int, c_void};
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// What one test does to the functions, another sees.
    fn alone() -> MutexGuard<'static, ()> {
        static LOCK: Mutex<()> = Mutex::new(());
        LOCK.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a monitor tells that some of these bytes have changed, and nothing that it cannot know.
    fn tells(monitor: &mut Monitor, start: *mut c_void, bytes: usize) -> bool {
        let (mut is_told, range) = (false, start.addr()..start.addr() + bytes);
        monitor.changes(|changed| match changed {
            Changed::Range(told) => is_told |= told.start <= range.start && told.end >= range.end,
            Changed::Any => panic!("it is in place, and other tests change little"),
        });
        is_told
    }

    const BYTES: usize = 64 * PAGE;

    fn map(at: *mut c_void, flags: c_int) -> *mut c_void {
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags);
        // SAFETY: new memory, or over memory of the test.
        let start = unsafe { libc::mmap(at, BYTES, rights, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        start
    }

    fn segment() -> c_int {
        // SAFETY: a new segment.
        let segment = unsafe { libc::shmget(libc::IPC_PRIVATE, BYTES, libc::IPC_CREAT | 0o600) };
        assert!(segment >= 0, "the system has shared memory segments");
        segment
    }

    #[test]
    fn each_call_that_takes_or_replaces_pages_is_told() {
        let _lock = alone();
        // SAFETY: the code is in the program itself.
        let mut monitor = unsafe { Monitor::start() }.expect("the C library can be patched");
        let old = map(null_mut(), 0);
        assert!(!tells(&mut monitor, old, BYTES), "a new mapping at a free address replaces nothing");
        for advice in [libc::MADV_DONTNEED, libc::MADV_FREE] {
            // SAFETY: memory of the test, here and below.
            assert_eq!(unsafe { libc::madvise(old.byte_add(PAGE), PAGE, advice) }, 0);
            assert!(tells(&mut monitor, old.wrapping_byte_add(PAGE), PAGE), "madvise {advice}");
        }
        // SAFETY: as above.
        assert_eq!(unsafe { libc::madvise(old, BYTES, libc::MADV_WILLNEED) }, 0);
        assert!(!tells(&mut monitor, old, BYTES), "this advice changes nothing");
        map(old, libc::MAP_FIXED);
        assert!(tells(&mut monitor, old, BYTES), "mmap over it");
        let other = map(null_mut(), 0);
        // SAFETY: as above.
        let moved = unsafe { libc::mremap(other, BYTES, BYTES, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, old) };
        assert_eq!(moved, old);
        let mut both = Vec::new();
        monitor.changes(|changed| both.push(changed));
        for of in [old, other] {
            assert!(both.contains(&Changed::Range(of.addr()..of.addr() + BYTES)), "mremap: {both:?}");
        }
        // SAFETY: as above.
        let attached = unsafe { libc::shmat(segment(), old, libc::SHM_REMAP) };
        assert_eq!(attached, old);
        assert!(tells(&mut monitor, old, BYTES), "a segment over it");
        // SAFETY: as above.
        assert_eq!(unsafe { libc::shmdt(old) }, 0);
        assert!(tells(&mut monitor, old, BYTES), "the segment goes");
        let last = map(null_mut(), 0);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::munmap(last.byte_add(PAGE), PAGE) }, 0);
        assert!(tells(&mut monitor, last.wrapping_byte_add(PAGE), PAGE), "munmap");
        // SAFETY: the heap grows and shrinks by what nobody has used, unless malloc has taken it meanwhile.
        unsafe {
            let end = libc::sbrk(BYTES as isize);
            assert_eq!(libc::sbrk(0), end.byte_add(BYTES));
            assert_eq!(libc::sbrk(-(BYTES as isize)), end.byte_add(BYTES));
            assert!(tells(&mut monitor, end, BYTES), "sbrk");
            assert_eq!((libc::brk(end.byte_add(BYTES)), libc::brk(end)), (0, 0));
            assert!(tells(&mut monitor, end, BYTES), "brk");
            assert_eq!(libc::sbrk(isize::MIN), null_mut::<c_void>().wrapping_byte_sub(1), "there is no such end");
        }
    }

    static CALLS_OF_ANOTHER: AtomicUsize = AtomicUsize::new(0);

    /// The hook of another library.
    unsafe extern "C" fn shmdt_of_another(segment: *const c_void) -> c_int {
        CALLS_OF_ANOTHER.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the call that the caller made.
        unsafe { libc::syscall(libc::SYS_shmdt, segment) as c_int }
    }

    /// Returns what libfabric and Open MPI patch with.
    #[cfg(target_arch = "x86_64")]
    fn jump_of_another(hook: usize) -> Vec<u8> {
        [&[0x49, 0xbb][..], &hook.to_le_bytes(), &[0x41, 0xff, 0xe3]].concat()
    }

    /// Returns what libfabric and Open MPI patch with.
    #[cfg(target_arch = "aarch64")]
    fn jump_of_another(hook: usize) -> Vec<u8> {
        let part = |place: u32| place << 21 | ((hook >> (16 * place)) as u32 & 0xffff) << 5 | 15;
        let code =
            [0xd280_0000 | part(3), 0xf280_0000 | part(2), 0xf280_0000 | part(1), 0xf280_0000 | part(0), 0xd61f_01e0];
        code.map(u32::to_le_bytes).concat()
    }

    #[test]
    fn a_patch_of_another_library_is_noticed_and_its_hook_goes_on_to_be_called() {
        let _lock = alone();
        // SAFETY: the code is in the program itself.
        let mut monitor = unsafe { Monitor::start() }.expect("the C library can be patched");
        let function = patch::library_symbol(c"shmdt").expect("the C library has it").cast::<u8>();
        let detach = |monitor: &mut Monitor| {
            // SAFETY: a new segment, of which the test has no reference.
            let start = unsafe { libc::shmat(segment(), std::ptr::null(), 0) };
            // SAFETY: as above.
            assert_eq!(unsafe { libc::shmdt(start) }, 0);
            tells(monitor, start, BYTES)
        };
        let jump = jump_of_another(shmdt_of_another as *const c_void as usize);
        let before = patch::write(function, &jump);
        let mut all = Vec::new();
        monitor.changes(|changed| all.push(changed));
        assert_eq!(all.first(), Some(&Changed::Any), "what the other patch has hidden is unknown");
        let calls = CALLS_OF_ANOTHER.load(Ordering::Relaxed);
        assert!(detach(&mut monitor), "both hooks see it");
        assert_eq!(CALLS_OF_ANOTHER.load(Ordering::Relaxed), calls + 1);
        // The other library goes: it restores what it has found, here the C library's own code.
        if cfg!(target_arch = "x86_64") && before[5..7] == [0x0f, 0x05] {
            let original = [&[0xb8, 0x43, 0, 0, 0], &before[5..]].concat(); // mov $SYS_shmdt, %eax; syscall
            patch::write(function, &original);
            all.clear();
            monitor.changes(|changed| all.push(changed));
            assert_eq!(all.first(), Some(&Changed::Any), "the hook was away");
            assert!(detach(&mut monitor));
            assert_eq!(CALLS_OF_ANOTHER.load(Ordering::Relaxed), calls + 1, "the other hook is called no more");
        }
    }
}
