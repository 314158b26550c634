// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cheap identifier of the current thread, for the delivery of events and for locks that their owner may take again;
//! and the start of threads that handle no signals. Path: [`number`] is hot, one instruction on x86-64; else setup.
//! Threads: any. Tests: below.

use std::mem::MaybeUninit;

/// The number of the current thread: unique among the living threads, never 0.
#[inline]
pub fn number() -> usize {
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
    {
        let number: usize;
        // SAFETY: by the ABI the thread pointer is at its own address, in the thread's memory, and never changes.
        unsafe {
            core::arch::asm!("mov {}, fs:0", out(reg) number, options(nostack, pure, readonly, preserves_flags));
        }
        number
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
    {
        thread_local!(static MARK: u8 = const { 0 });
        MARK.with(|mark| std::ptr::from_ref(mark).addr())
    }
}

/// Runs `start` with all signals blocked but those of faults, so that the threads that it starts have them blocked: the
/// program's handlers run in the program's threads.
pub fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    let (mut blocked, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: `sigfillset` and `pthread_sigmask` initialise the sets that they get.
    let before: libc::sigset_t = unsafe {
        libc::sigfillset(blocked.as_mut_ptr());
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE] {
            libc::sigdelset(blocked.as_mut_ptr(), fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, blocked.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    };
    let started = start();
    // SAFETY: the mask is the former one.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    started
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn each_thread_has_its_own_number_and_keeps_it() {
        let mine = number();
        let others = std::thread::scope(|scope| scope.spawn(|| [number(), number()]).join().expect("it ends"));
        assert!(mine != 0 && mine == number() && others[0] == others[1] && others[0] != mine);
    }
}
