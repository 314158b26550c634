// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tracks the threads that are delivering, which a freed registration waits for before its free callback runs.
//!
//! This is not for memory, which reference counts keep, but for the promise "no callback runs after the free callback".
//! Each thread has a [`DeliveryCounter`], a word that is odd while the thread delivers. The freeing thread first marks
//! the registration dead, then takes a [`GracePeriod`]: the threads that are delivering now. When each has left once,
//! no thread can see the registration. A delivering thread writes its word and then reads whether the registration is
//! alive; the freeing thread marks it dead and then reads the words; all four accesses are sequentially consistent, so
//! one sees the other.
//!
//! Path: [`DeliveryCounter::enter`] and [`DeliveryCounter::leave`] hot, one locked instruction on a line of the
//! thread's own; the rest setup. Threads: any; nobody waits for anybody. Tests: the models in `tests/models.rs`, and
//! `tests/free.rs`.

use super::sync::{Arc, AtomicU64, Mutex, Ordering, lock, model_fence};

/// Whether one thread is inside a delivery. Odd: inside; every entry has another odd number.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct DeliveryCounter(AtomicU64);

impl DeliveryCounter {
    pub(super) fn new() -> DeliveryCounter {
        DeliveryCounter(AtomicU64::new(0))
    }

    /// This thread begins to deliver. Called by the counter's own thread only, as is [`DeliveryCounter::leave`].
    #[inline]
    pub(super) fn enter(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        model_fence();
    }

    /// It has finished: what it did is before whatever a grace period that saw it leave does.
    #[inline]
    pub(super) fn leave(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

/// The threads that may deliver.
#[derive(Debug)]
pub(super) struct DeliveringThreads(Mutex<Vec<Arc<DeliveryCounter>>>);

impl DeliveringThreads {
    pub(super) fn new() -> DeliveringThreads {
        DeliveringThreads(Mutex::new(Vec::new()))
    }

    /// A thread comes. Returns how many there are now.
    pub(super) fn add(&self, counter: &Arc<DeliveryCounter>) -> usize {
        let mut all = lock(&self.0);
        all.push(Arc::clone(counter));
        all.len()
    }

    /// A thread goes; it is not delivery. Returns how many are left.
    pub(super) fn remove(&self, counter: &Arc<DeliveryCounter>) -> usize {
        let mut all = lock(&self.0);
        all.retain(|other| !Arc::ptr_eq(other, counter));
        all.len()
    }

    /// Who is inside now. What was written before is seen by all who enter later.
    pub(super) fn grace_period(&self) -> GracePeriod {
        model_fence();
        let delivery = |counter: &Arc<DeliveryCounter>| {
            let word = counter.0.load(Ordering::SeqCst);
            (word % 2 == 1).then(|| (Arc::clone(counter), word))
        };
        GracePeriod(lock(&self.0).iter().filter_map(delivery).collect())
    }
}

/// Those whose leaving is waited for.
#[derive(Debug)]
pub(super) struct GracePeriod(Vec<(Arc<DeliveryCounter>, u64)>);

impl GracePeriod {
    /// Whether all have left at least once.
    pub(super) fn is_over(&mut self) -> bool {
        self.0.retain(|(counter, word)| counter.0.load(Ordering::Acquire) == *word);
        self.0.is_empty()
    }
}
