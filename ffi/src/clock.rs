// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processor's time stamp counter, and the monotonic clock as a number. The caller must prove that the counter is
//! usable as a clock (`src/events/sources/clock.rs`). Path: hot (one instruction). Threads: any. Tests: the engine's.

/// Whether there is a counter. Miri, which interprets tests, has none.
pub const HAS_COUNTER: bool = cfg!(all(target_arch = "x86_64", not(miri)));

/// The counter's value, in ticks; 0 if there is no counter.
#[inline]
pub fn counter() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 processor has it; it touches no memory. A trap (prctl PR_SET_TSC) would end the process.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    0
}

/// The monotonic clock, ns. It costs a third of `Instant::now`.
#[inline]
pub fn monotonic() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the call. Linux always has this clock, so the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
