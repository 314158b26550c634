// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loom's models of the concurrent parts: every interleaving of a few steps of the buffer and of the grace period.

use crate::events::delivery::quiescence::{DeliveringThreads, DeliveryCounter};
use crate::events::registrations::ring::Ring;
use crate::events::{EventInstance, SourceId, TypeId, WORDS};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;

fn instance(source: u16, timestamp: u64) -> EventInstance {
    EventInstance { event_type: TypeId(0), source: SourceId(source), timestamp, words: [timestamp; WORDS] }
}

#[test]
fn two_producers_and_a_consumer_tear_no_event_and_lose_none_uncounted() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let ring = Arc::new(Ring::new(2));
        let put: Vec<_> = (1..=2)
            .map(|source| {
                let ring = Arc::clone(&ring);
                thread::spawn(move || {
                    (1..=2).filter(|&number| ring.push(&instance(source, number), number, 1).is_err()).count()
                })
            })
            .collect();
        let mut out = Vec::new();
        for _ in 0..3 {
            out.extend(ring.pop(1));
        }
        let refused: usize = put.into_iter().map(|thread| thread.join().expect("no panic")).sum();
        out.extend(std::iter::from_fn(|| ring.pop(1)));
        assert_eq!(out.len() + refused, 4);
        for source in 1..=2 {
            let stamps: Vec<_> = out.iter().filter(|one| one.source.0 == source).map(|one| one.timestamp).collect();
            assert!(stamps.is_sorted());
        }
        let is_one = |one: &EventInstance| (1..=2).contains(&one.source.0) && (1..=2).contains(&one.timestamp);
        assert!(out.iter().all(|one| is_one(one) && one.words[0] == one.timestamp));
    });
}

#[test]
fn after_a_grace_period_no_thread_calls_a_registration_freed_before_it() {
    loom::model(|| {
        let threads = Arc::new(DeliveringThreads::new());
        let live = Arc::new(AtomicBool::new(true));
        let gone = Arc::new(AtomicBool::new(false));
        let calling = Arc::new(AtomicBool::new(false));
        let mine = Arc::new(DeliveryCounter::new());
        threads.add(&mine);
        let delivering = {
            let (live, gone, mine) = (Arc::clone(&live), Arc::clone(&gone), Arc::clone(&mine));
            let calling = Arc::clone(&calling);
            thread::spawn(move || {
                for _ in 0..2 {
                    mine.enter();
                    if live.load(Ordering::SeqCst) {
                        calling.store(true, Ordering::Relaxed);
                        assert!(!gone.load(Ordering::Relaxed), "a callback after the free callback");
                        calling.store(false, Ordering::Relaxed);
                    }
                    mine.leave();
                }
            })
        };
        live.store(false, Ordering::SeqCst);
        let mut grace_period = threads.grace_period();
        if grace_period.is_over() {
            assert!(!calling.load(Ordering::Relaxed), "what a callback did is seen by the free callback");
            gone.store(true, Ordering::Relaxed);
        }
        delivering.join().expect("no panic");
        assert!(grace_period.is_over(), "all have left");
    });
}

#[test]
fn work_that_is_flagged_after_it_was_stored_is_never_overlooked() {
    loom::model(|| {
        // The steps of `interest_mask::set_pending` and `Emptying::empty`, with a count in place of a buffer.
        let (work, stored) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicU64::new(0)));
        let raising = {
            let (work, stored) = (Arc::clone(&work), Arc::clone(&stored));
            thread::spawn(move || {
                stored.store(1, Ordering::SeqCst);
                loom::sync::atomic::fence(Ordering::SeqCst);
                if work.load(Ordering::SeqCst) == 0 {
                    work.fetch_or(1, Ordering::SeqCst);
                }
            })
        };
        work.fetch_and(0, Ordering::SeqCst);
        loom::sync::atomic::fence(Ordering::SeqCst);
        let seen = stored.load(Ordering::SeqCst) == 1;
        raising.join().expect("no panic");
        assert!(seen || work.load(Ordering::SeqCst) == 1);
    });
}
