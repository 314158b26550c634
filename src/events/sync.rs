// SPDX-License-Identifier: MIT OR Apache-2.0
//! The atomics, the lock and the fence of the concurrent parts, so that loom can stand in for them.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p ibex events::` runs the models of `tests/models.rs` on loom's; every other
//! build has std's. Loom takes sequentially consistent accesses for acquire and release ones and models fences alone as
//! such, so where an algorithm rests on that order it also calls [`model_fence`], which is nothing outside of loom.

#[cfg(not(all(loom, test)))]
pub(super) use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

#[cfg(all(loom, test))]
pub(super) use loom::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

/// The lock's content, also where a holder panicked: all that is kept under locks here is valid at every step.
#[inline]
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A sequentially consistent fence for loom; see above.
#[inline]
pub(super) fn model_fence() {
    #[cfg(all(loom, test))]
    loom::sync::atomic::fence(Ordering::SeqCst);
}
