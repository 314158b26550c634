// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processor's time stamp counter.
//!
//! Whether it is fit to be a clock is for the caller to prove (the engine's `events/clock.rs`). Path: hot, one
//! instruction. Threads: any. Tests: the engine's.

/// Whether there is one. Miri, which interprets tests, has none.
pub const HAS_COUNTER: bool = cfg!(all(target_arch = "x86_64", not(miri)));

/// What it shows, in its own ticks; 0 where there is none.
#[must_use]
#[inline]
pub fn counter() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 processor has the instruction, and it touches no memory. A system that traps it in user mode
    // (prctl PR_SET_TSC) ends the process at the first call, as it would with the C library's own clock.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    0
}
