// SPDX-License-Identifier: MIT OR Apache-2.0
//! The atomics, the lock and the fence of the concurrent parts, so that loom can stand in for them. In the models of
//! `tests/models.rs` they are loom's; every other build has std's. Loom treats sequentially consistent accesses as
//! acquire and release ones, and models only fences as sequentially consistent. So an algorithm that rests on that
//! order also calls [`model_fence`], a no-op outside loom. Grade: hot. Threads: any.

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

/// Locks, also after a holder panicked: all data under these locks is valid at every step.
#[inline]
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[inline]
pub(super) fn model_fence() {
    #[cfg(all(loom, test))]
    loom::sync::atomic::fence(Ordering::SeqCst);
}
