// SPDX-License-Identifier: MIT OR Apache-2.0
//! Freeing: no callback follows the free callback, from within a callback and while other threads deliver.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn noting(freed: &Arc<AtomicU64>) -> FreeCallback {
    let freed = Arc::clone(freed);
    Box::new(move |_, _| {
        freed.fetch_add(1, Ordering::SeqCst);
    })
}

#[test]
fn a_freed_registration_delivers_its_events_and_then_calls_the_free_callback_once() {
    let _alone = alone();
    let order = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&order);
    let registration = calling(NUMBERED, Safety::ThreadSafe, buffered(8), move |instance, _, _| {
        noted.lock().expect("no panic").push(instance.words[0]);
    });
    (1..=3).for_each(raise_number);
    let noted = Arc::clone(&order);
    let on_free: FreeCallback = Box::new(move |_, _| noted.lock().expect("no panic").push(99));
    free(&registration, Safety::None, Some(on_free)).expect("live");
    raise_number(4);
    deliver_all();
    assert_eq!(*order.lock().expect("no panic"), [1, 2, 3, 99]);
}

#[test]
fn a_callback_may_free_its_own_registration() {
    let _alone = alone();
    let (freed, calls) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (noted, counted) = (Arc::clone(&freed), Arc::clone(&calls));
    let _registration = calling(NUMBERED, Safety::ThreadSafe, Options::default(), move |_, registration, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        free(registration, Safety::ThreadSafe, Some(noting(&noted))).expect("live");
        assert_eq!(noted.load(Ordering::SeqCst), 0, "not while a callback of it runs");
    });
    raise_number(1);
    assert_eq!(freed.load(Ordering::SeqCst), 1, "as soon as the callback has returned");
    raise_number(2);
    assert_eq!((calls.load(Ordering::SeqCst), freed.load(Ordering::SeqCst)), (1, 1));
}

#[test]
fn a_registration_that_frees_itself_gets_the_rest_of_its_events_before_its_free_callback() {
    let _alone = alone();
    let (freed, calls) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (noted, counted) = (Arc::clone(&freed), Arc::clone(&calls));
    let _registration = calling(NUMBERED, Safety::ThreadSafe, buffered(8), move |_, registration, _| {
        assert_eq!(noted.load(Ordering::SeqCst), 0);
        if counted.fetch_add(1, Ordering::SeqCst) == 0 {
            free(registration, Safety::ThreadSafe, Some(noting(&noted))).expect("live");
        }
    });
    (1..=3).for_each(raise_number);
    deliver_all();
    assert_eq!((calls.load(Ordering::SeqCst), freed.load(Ordering::SeqCst)), (3, 1));
}

#[test]
fn a_callback_may_free_another_registration_and_a_free_callback_may_free_a_third() {
    let _alone = alone();
    let freed = Arc::new(AtomicU64::new(0));
    let third = listen(Options::default(), Seen::default().callback());
    let seen = Seen::default();
    let second = listen(Options::default(), seen.callback());
    let noted = Arc::clone(&freed);
    let _first = calling(NUMBERED, Safety::ThreadSafe, Options::default(), move |_, own, _| {
        let (third, again) = (Arc::clone(&third), Arc::clone(&noted));
        let chain: FreeCallback = Box::new(move |_, _| {
            again.fetch_add(1, Ordering::SeqCst);
            free(&third, Safety::None, Some(noting(&again))).expect("live");
        });
        free(&second, Safety::ThreadSafe, Some(chain)).expect("live");
        free(own, Safety::ThreadSafe, Some(noting(&noted))).expect("live");
    });
    raise_number(1);
    deliver_all();
    assert_eq!(freed.load(Ordering::SeqCst), 3);
    assert!(seen.numbers().len() <= 1, "at most the event that was under way");
    assert!(!interest().has(NUMBERED));
}

#[test]
fn a_freed_registration_reports_its_losses_before_its_free_callback() {
    let _alone = alone();
    let registration = listen_to(NUMBERED, Safety::None, Options::default(), Seen::default().callback());
    let losses = losses(&registration);
    (1..=3).for_each(raise_number);
    let freed = Arc::new(AtomicU64::new(0));
    free(&registration, Safety::ThreadSafe, Some(noting(&freed))).expect("live");
    assert_eq!(losses.lock().expect("no panic").iter().sum::<u64>(), 3);
    assert_eq!(freed.load(Ordering::SeqCst), 1);
}

#[test]
fn events_for_an_unrestricted_callback_survive_a_free_that_another_thread_completes() {
    let _alone = alone();
    let (gate, stay) = Gate::new();
    let seen = Seen::default();
    let registration = listen_to(NUMBERED, Safety::None, Options::default(), seen.callback());
    (1..=20).for_each(raise_number);
    let lingers = calling(NUMBERED, Safety::ThreadSafe, buffered(8), move |_, _, _| stay());
    raise_number(21);
    let freed = Arc::new(AtomicU64::new(0));
    let other = std::thread::spawn(|| {
        deliver(usize::MAX, Safety::MpiRestricted);
        // No thread is within a callback now.
        deliver(usize::MAX, Safety::MpiRestricted);
    });
    gate.is_reached();
    free(&registration, Safety::None, Some(noting(&freed))).expect("live");
    free(&lingers, Safety::ThreadSafe, None).expect("live");
    gate.open();
    other.join().expect("no panic");
    deliver(usize::MAX, Safety::MpiRestricted);
    assert_eq!((seen.numbers().len(), freed.load(Ordering::SeqCst), registration.dropped()), (0, 0, 0));
    deliver_pending(Safety::None);
    assert_eq!((seen.numbers().len(), freed.load(Ordering::SeqCst), registration.dropped()), (21, 1, 0));
}

#[test]
fn no_callback_runs_after_the_free_callback_however_many_threads_deliver() {
    let _alone = alone();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    (0..50).for_each(raise_number);
                    deliver_all();
                }
            });
        }
        for round in 0..if cfg!(miri) { 4 } else { 100 } {
            let over = Arc::new(AtomicBool::new(false));
            let (gone, calls) = (Arc::clone(&over), Arc::new(AtomicU64::new(0)));
            let counted = Arc::clone(&calls);
            let options = if round % 2 == 0 { Options::default() } else { buffered(64) };
            let registration = calling(NUMBERED, Safety::ThreadSafe, options, move |_, _, _| {
                assert!(!gone.load(Ordering::SeqCst), "a callback after the free callback");
                counted.fetch_add(1, Ordering::SeqCst);
            });
            while calls.load(Ordering::SeqCst) < 10 {
                std::thread::yield_now();
            }
            let gone = Arc::clone(&over);
            let on_free: FreeCallback = Box::new(move |_, _| gone.store(true, Ordering::SeqCst));
            free(&registration, Safety::ThreadSafe, Some(on_free)).expect("live");
            while !over.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}
