// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who is inside a delivery: what a freed registration waits for before its free callback runs.
//!
//! Memory needs no such care (reference counts keep it); the promise "no callback runs after the free callback" does. Each
//! thread has a [`Presence`], an own word that is odd while the thread delivers. Who frees first makes the registration dead, then
//! takes a [`Grace`]: the threads that are inside now. When each has left once, nobody can see the registration any more.
//! A thread that enters writes its word and then reads whether the registration lives; who frees writes that and then reads
//! the word; all four are sequentially consistent, so one of the two sees the other.
//!
//! Path: [`Presence::enter`] and [`Presence::leave`] hot, one locked instruction on a line of the thread's own; the rest setup.
//! Threads: any; nobody waits for anybody. Tests: the models in `tests/models.rs`, and `tests/free.rs`.

use super::sync::{Arc, AtomicU64, Mutex, Ordering, lock, model_fence};

/// Whether one thread is inside a delivery. Odd: inside; every entry has another odd number.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Presence(AtomicU64);

impl Presence {
    pub(super) fn new() -> Presence {
        Presence(AtomicU64::new(0))
    }

    /// This thread begins to deliver. Called by the presence's own thread only, as is [`Presence::leave`].
    #[inline]
    pub(super) fn enter(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        model_fence();
    }

    /// It has finished: what it did is before whatever a grace that saw it leave does.
    #[inline]
    pub(super) fn leave(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

/// The threads that may deliver.
#[derive(Debug)]
pub(super) struct Threads(Mutex<Vec<Arc<Presence>>>);

impl Threads {
    pub(super) fn new() -> Threads {
        Threads(Mutex::new(Vec::new()))
    }

    /// A thread comes. Returns how many there are now.
    pub(super) fn join(&self, presence: &Arc<Presence>) -> usize {
        let mut all = lock(&self.0);
        all.push(Arc::clone(presence));
        all.len()
    }

    /// A thread goes; it is not inside. Returns how many are left.
    pub(super) fn part(&self, presence: &Arc<Presence>) -> usize {
        let mut all = lock(&self.0);
        all.retain(|other| !Arc::ptr_eq(other, presence));
        all.len()
    }

    /// Who is inside now. What was written before is seen by all who enter later.
    pub(super) fn grace(&self) -> Grace {
        model_fence();
        let inside = |presence: &Arc<Presence>| {
            let word = presence.0.load(Ordering::SeqCst);
            (word % 2 == 1).then(|| (Arc::clone(presence), word))
        };
        Grace(lock(&self.0).iter().filter_map(inside).collect())
    }
}

/// Those whose leaving is waited for.
#[derive(Debug)]
pub(super) struct Grace(Vec<(Arc<Presence>, u64)>);

impl Grace {
    /// Whether all have left at least once.
    pub(super) fn is_over(&mut self) -> bool {
        self.0.retain(|(presence, word)| presence.0.load(Ordering::Acquire) == *word);
        self.0.is_empty()
    }
}
