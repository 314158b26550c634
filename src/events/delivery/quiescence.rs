// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tracks the threads that are delivering. A freed registration waits for them, so that no callback runs after its free
//! callback. (Reference counts protect the memory.)
//!
//! Each thread has a [`DeliveryCounter`], a word that is odd while the thread delivers. The freeing thread first marks
//! the registration dead, then takes a [`GracePeriod`]: the threads that are delivering now. When each has left once,
//! no thread can see the registration. A delivering thread writes its word and then reads whether the registration is
//! alive; the freeing thread marks it dead and then reads the words; all four accesses are sequentially consistent, so
//! one sees the other.
//!
//! Grade: hot for [`DeliveryCounter`] (one locked instruction on a line of the thread's own), else setup. Threads: any.
//! Tests: the models in `tests/models.rs`, and `tests/free.rs`.

use crate::events::sync::{Arc, AtomicU64, Mutex, Ordering, lock, model_fence};

/// Whether one thread is inside a delivery. Odd: inside; every entry has another odd number.
#[derive(Debug)]
#[repr(align(128))]
pub(in crate::events) struct DeliveryCounter(AtomicU64);

impl DeliveryCounter {
    pub(in crate::events) fn new() -> DeliveryCounter {
        DeliveryCounter(AtomicU64::new(0))
    }

    /// Marks the start of a delivery. Only the counter's own thread calls this and [`DeliveryCounter::leave`].
    #[inline]
    pub(in crate::events) fn enter(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        model_fence();
    }

    /// Marks the end of a delivery, which happens before everything that follows a grace period that saw it end.
    #[inline]
    pub(in crate::events) fn leave(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

#[derive(Debug)]
pub(in crate::events) struct DeliveringThreads(Mutex<Vec<Arc<DeliveryCounter>>>);

impl DeliveringThreads {
    pub(in crate::events) fn new() -> DeliveringThreads {
        DeliveringThreads(Mutex::new(Vec::new()))
    }

    pub(in crate::events) fn add(&self, counter: &Arc<DeliveryCounter>) -> usize {
        let mut all = lock(&self.0);
        all.push(Arc::clone(counter));
        all.len()
    }

    pub(in crate::events) fn remove(&self, counter: &Arc<DeliveryCounter>) {
        lock(&self.0).retain(|other| !Arc::ptr_eq(other, counter));
    }

    /// Returns the threads that are delivering now. Threads that enter later see all that was written before this call.
    pub(in crate::events) fn grace_period(&self) -> GracePeriod {
        model_fence();
        let delivery = |counter: &Arc<DeliveryCounter>| {
            let word = counter.0.load(Ordering::SeqCst);
            (word % 2 == 1).then(|| (Arc::clone(counter), word))
        };
        GracePeriod(lock(&self.0).iter().filter_map(delivery).collect())
    }
}

/// The threads whose deliveries a grace period waits for, and their words.
#[derive(Debug)]
pub(in crate::events) struct GracePeriod(Vec<(Arc<DeliveryCounter>, u64)>);

impl GracePeriod {
    /// Whether each thread has left its delivery at least once.
    pub(in crate::events) fn is_over(&mut self) -> bool {
        self.0.retain(|(counter, word)| counter.0.load(Ordering::Acquire) == *word);
        self.0.is_empty()
    }
}
