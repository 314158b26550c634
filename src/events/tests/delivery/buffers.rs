// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffered delivery: order, full buffers, and that every loss is counted and reported.

use crate::events::tests::*;
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[test]
fn buffered_events_wait_for_progress_with_the_time_at_which_they_happened() {
    let (_alone, seen, registration) = listening(buffered(8));
    let before = HostClock::get().now();
    (1..=3).for_each(raise_number);
    let after = HostClock::get().now();
    assert_eq!((seen.numbers().len(), registration.waiting()), (0, 3));
    progress(Safety::MpiRestricted);
    assert_eq!(seen.numbers(), [1, 2, 3]);
    assert!(seen.lock().iter().all(|instance| (before..=after).contains(&instance.timestamp)));
}

#[test]
fn a_budget_bounds_the_events_of_one_delivery_and_every_registration_gets_its_turn() {
    let _alone = alone();
    let (first, second) = (Seen::default(), Seen::default());
    let _one = listen(buffered(16), first.callback());
    let _two = listen(buffered(16), second.callback());
    (1..=10).for_each(raise_number);
    for _ in 0..5 {
        assert_eq!(deliver_counted(4, Safety::MpiRestricted), 4);
    }
    assert_eq!(deliver_counted(4, Safety::MpiRestricted), 0);
    assert_eq!(first.numbers(), (1..=10).collect::<Vec<_>>());
    assert_eq!(second.numbers(), first.numbers());
}

#[test]
fn a_full_buffer_drops_new_events_counts_them_and_reports_the_loss_once() {
    let (_alone, seen, registration) = listening(buffered(4));
    let losses = losses(&registration);
    (1..=7).for_each(raise_number);
    assert_eq!(registration.dropped(), 3);
    assert_eq!(*losses.lock().expect("no panic"), [], "not from within the raising");
    deliver_all();
    deliver_all();
    assert_eq!(seen.numbers(), [1, 2, 3, 4]);
    assert_eq!(*losses.lock().expect("no panic"), [3]);
    (8..=9).for_each(raise_number);
    deliver_all();
    assert_eq!(*losses.lock().expect("no panic"), [3], "nothing new was lost");
}

#[test]
fn a_dropped_handler_that_is_set_later_gets_earlier_losses() {
    let _alone = alone();
    let registration = listen(buffered(2), Seen::default().callback());
    (1..=5).for_each(raise_number);
    deliver_all();
    let losses = losses(&registration);
    deliver_all();
    assert_eq!(*losses.lock().expect("no panic"), [3]);
}

#[test]
fn the_dropped_handler_runs_before_later_events_and_only_where_it_may_run() {
    let _alone = alone();
    let order = Arc::new(Mutex::new(Vec::new()));
    let (events, losses) = (Arc::clone(&order), Arc::clone(&order));
    let registration = calling(NUMBERED, Safety::MpiRestricted, buffered(2), move |instance, _, _| {
        let number = instance.words[0] & 0xffff_ffff;
        events.lock().expect("no panic").push(number);
        // The buffer has room again: this event comes after the lost ones.
        if number == 1 {
            raise_number(5);
        }
    });
    let dropped: DroppedCallback =
        Arc::new(move |count: u64, _, _: &Registration, _| losses.lock().expect("no panic").push(100 + count));
    set_dropped(&registration, Some(dropped)).expect("live");
    (1..=4).for_each(raise_number);
    deliver(usize::MAX, Safety::ThreadSafe);
    assert_eq!(*order.lock().expect("no panic"), [], "no callback is fit");
    deliver(usize::MAX, Safety::MpiRestricted);
    deliver(usize::MAX, Safety::MpiRestricted);
    let order = order.lock().expect("no panic").clone();
    let place = |what| order.iter().position(|seen| *seen == what);
    assert!(order.len() == 4 && place(102) < place(5) && place(1) < place(2) && place(2) < place(5), "{order:?}");
}

#[test]
fn a_registration_that_stops_buffering_delivers_its_waiting_events_before_new_ones() {
    let (_alone, seen, registration) = listening(buffered(8));
    raise_number(1);
    registration.set_buffered(false);
    raise_number(2);
    assert_eq!(seen.numbers(), [], "the second waits behind the first");
    deliver_all();
    raise_number(3);
    assert_eq!(seen.numbers(), [1, 2, 3]);
}

#[test]
fn an_event_raised_during_a_delivery_comes_after_the_buffered_ones() {
    let _alone = alone();
    let seen = Seen::default();
    let (noted, raised) = (seen.clone(), Mutex::new(false));
    let registration = calling(NUMBERED, Safety::ThreadSafe, buffered(8), move |instance, _, _| {
        noted.lock().push(*instance);
        if !std::mem::replace(&mut *raised.lock().expect("no panic"), true) {
            raise_number(9);
        }
    });
    (1..=3).for_each(raise_number);
    registration.set_buffered(false);
    deliver_all();
    deliver_all();
    assert_eq!(seen.numbers(), [1, 2, 3, 9]);
}

#[test]
fn callbacks_that_raise_while_a_buffer_is_emptied_lose_nothing() {
    let _alone = alone();
    let seen = Seen::default();
    let raising = calling(NUMBERED, Safety::ThreadSafe, buffered(256), |_, _, _| {
        for _ in 0..3 {
            raise(Safety::MpiRestricted, PortAsync::default);
        }
    });
    let other = listen_to(PortAsync::TYPE, Safety::ThreadSafe, Options::default(), seen.callback());
    (0..256).for_each(raise_number);
    deliver_all();
    assert_eq!((seen.lock().len(), other.dropped(), raising.dropped()), (768, 0, 0));
}

proptest! {
    /// Each event that a registration was offered was delivered, is in the buffer, or was lost and reported.
    #[test]
    fn the_engine_delivers_buffers_or_reports_every_event(
        room in 1_usize..20,
        steps in proptest::collection::vec((0_u8..4, 1_usize..30), 1..60),
    ) {
        let _alone = alone();
        let seen = Seen::default();
        let registration = listen(buffered(room), seen.callback());
        let losses = losses(&registration);
        let mut raised = 0;
        for (step, count) in steps {
            match step {
                0 => deliver(count, Safety::MpiRestricted),
                1 => registration.set_buffered(count % 2 == 0),
                _ => (0..count).for_each(|_| {
                    raised += 1;
                    raise_number(raised);
                }),
            }
            let delivered = seen.lock().len() as u64;
            prop_assert_eq!(delivered + registration.waiting() + registration.dropped(), u64::from(raised));
            prop_assert!(registration.waiting() <= registration.room() as u64);
        }
        deliver_all();
        deliver_all();
        let got = seen.numbers();
        prop_assert!(got.is_sorted());
        prop_assert_eq!(losses.lock().expect("no panic").iter().sum::<u64>() + got.len() as u64, u64::from(raised));
    }
}

#[test]
fn one_thread_at_a_time_empties_buffers_however_often_others_try() {
    let _alone = alone();
    let (gate, stay) = Gate::new();
    let has_been = AtomicBool::new(false);
    let linger: Callback = Arc::new(move |_: &EventInstance, _: &Registration, _| {
        if !has_been.swap(true, Ordering::SeqCst) {
            stay();
        }
    });
    let _registrations = [listen(buffered(8), Arc::clone(&linger)), listen(buffered(8), linger)];
    raise_number(1);
    let other = std::thread::spawn(deliver_all);
    gate.is_reached();
    assert_eq!(deliver_all(), 0, "the other thread is at it");
    raise_number(2);
    assert_eq!(deliver_all(), 0, "and still is");
    gate.open();
    assert_eq!(other.join().expect("no panic") + deliver_all(), 4);
}

#[test]
fn one_thread_at_a_time_calls_callbacks_that_are_not_thread_safe() {
    let _alone = alone();
    let delivery = Arc::new(AtomicUsize::new(0));
    let (counting, most) = (Arc::clone(&delivery), Arc::new(AtomicUsize::new(0)));
    let (gate, stay) = Gate::new();
    let met = Arc::clone(&most);
    let first = AtomicBool::new(false);
    let callback: Callback = Arc::new(move |_: &EventInstance, _: &Registration, _| {
        met.fetch_max(counting.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        if !first.swap(true, Ordering::SeqCst) {
            stay();
        }
        counting.fetch_sub(1, Ordering::SeqCst);
    });
    let registrations =
        [(); 2].map(|()| listen_to(NUMBERED, Safety::MpiRestricted, buffered(8), Arc::clone(&callback)));
    // The event is in both buffers: one thread is in a callback of one of them.
    raise_number(1);
    let first = std::thread::spawn(|| deliver(1, Safety::MpiRestricted));
    gate.is_reached();
    // A thread that finds another one emptying buffers does not end that one's turn, however many such threads come.
    for number in 2..5 {
        raise_number(number);
        deliver(usize::MAX, Safety::MpiRestricted);
    }
    gate.open();
    first.join().expect("no panic");
    deliver(usize::MAX, Safety::MpiRestricted);
    assert_eq!((most.load(Ordering::SeqCst), registrations.map(|registration| registration.waiting())), (1, [0, 0]));
}
