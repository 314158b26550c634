// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registrations: which of them gets an event, by which callback.

use super::*;
use crate::events::registrations::registration::Callbacks;

#[test]
fn a_site_is_active_exactly_while_a_callback_listens() {
    let _alone = alone();
    assert!(!interest().has(NUMBERED));
    let registration = register(NUMBERED, Options::default());
    assert!(!interest().has(NUMBERED), "without a callback nobody listens");
    let seen = Seen::default();
    set_callback(&registration, Safety::ThreadSafe, Some(seen.callback())).expect("live");
    assert!(interest().has(NUMBERED));
    set_active(&registration, false).expect("live");
    assert!(!interest().has(NUMBERED));
    set_active(&registration, true).expect("live");
    set_callback(&registration, Safety::ThreadSafe, None).expect("live");
    assert!(!interest().has(NUMBERED));
    raise(Safety::None, || -> DeviceAsync { panic!("nobody asked for the elements") });
    assert!(!interest().has(PortAsync::TYPE), "another type is another matter");
}

#[test]
fn registrations_of_one_type_are_independent() {
    let _alone = alone();
    let (first, second, other) = (Seen::default(), Seen::default(), Seen::default());
    let one = listen(Options::default(), first.callback());
    let two = listen(Options::default(), second.callback());
    let _third = listen_to(PortAsync::TYPE, Safety::ThreadSafe, Options::default(), other.callback());
    raise_number(1);
    free(&one, Safety::ThreadSafe, None).expect("live");
    raise_number(2);
    set_active(&two, false).expect("live");
    raise_number(3);
    assert_eq!((first.numbers(), second.numbers(), other.numbers()), (vec![1], vec![1, 2], vec![]));
}

#[test]
fn an_event_calls_the_callback_of_the_lowest_level_that_suffices() {
    let callbacks = Safety::ALL.map(|_| -> Callback { Arc::new(|_: &EventInstance, _: &Registration, _| {}) });
    for set in 0..16_usize {
        let mut calls = Callbacks::default();
        for level in Safety::ALL {
            if set >> level.index() & 1 == 1 {
                calls.set(level, Some(Arc::clone(&callbacks[level.index()])));
            }
        }
        for needed in Safety::ALL {
            let expected = (needed.index()..4).find(|index| set >> index & 1 == 1);
            let fit = calls.fit(needed).map(|fit| callbacks.iter().position(|callback| Arc::ptr_eq(callback, fit)));
            assert_eq!(fit, expected.map(Some), "{set:04b} where {needed:?} is needed");
        }
    }
}

#[test]
fn a_callback_of_the_highest_level_runs_everywhere_and_gets_the_level_of_the_place() {
    let _alone = alone();
    let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
    let registration = register(NUMBERED, Options::default());
    let noted = Arc::clone(&asked);
    let callback: Callback =
        Arc::new(move |_: &EventInstance, _: &Registration, needed| noted.lock().expect("no panic").push(needed));
    set_callback(&registration, Safety::AsyncSignalSafe, Some(callback)).expect("live");
    for context in Safety::ALL {
        raise(context, DeviceAsync::default);
    }
    let asked = asked.lock().expect("no panic");
    // Once a second thread raises events, no place requires less than `ThreadSafe`.
    let is_right =
        |(passed, context): (&Safety, Safety)| *passed == context || *passed == Safety::ThreadSafe.max(context);
    assert!(asked.len() == 4 && asked.iter().zip(Safety::ALL).all(is_right), "{asked:?}");
}

#[test]
fn an_event_waits_for_a_place_where_one_of_its_callbacks_may_run() {
    let (_alone, seen, registration) = listening_to(NUMBERED, Safety::MpiRestricted, Options::default());
    raise(Safety::ThreadSafe, || DeviceAsync { event: 1, port: 0 });
    raise(Safety::AsyncSignalSafe, || DeviceAsync { event: 2, port: 0 });
    assert_eq!((seen.numbers().len(), registration.waiting()), (0, 2));
    assert_eq!(deliver_counted(9, Safety::ThreadSafe), 0, "here neither");
    assert_eq!(deliver_counted(9, Safety::MpiRestricted), 2);
    assert_eq!(seen.numbers(), [1, 2]);
}

#[test]
fn a_registration_bound_to_an_object_gets_the_events_of_that_object_alone() {
    let _alone = alone();
    let (mine, all) = (Seen::default(), Seen::default());
    for (object, seen) in [(Some(7), &mine), (None, &all)] {
        listen_to(XferBegin::TYPE, Safety::ThreadSafe, Options { object, ..Options::default() }, seen.callback());
    }
    for context in [6, 7, 8, 7] {
        raise(Safety::ThreadSafe, || XferBegin { request: u64::from(context), context, ..XferBegin::default() });
    }
    assert_eq!((mine.numbers(), all.numbers()), (vec![7, 7], vec![6, 7, 8, 7]));
}

#[test]
fn a_replaced_callback_gets_no_further_event() {
    let _alone = alone();
    let (old, new) = (Seen::default(), Seen::default());
    let registration = listen(Options::default(), old.callback());
    raise_number(1);
    set_callback(&registration, Safety::ThreadSafe, Some(new.callback())).expect("live");
    raise_number(2);
    assert_eq!((old.numbers(), new.numbers()), (vec![1], vec![2]));
}

#[test]
fn a_freed_registration_refuses_everything() {
    let _alone = alone();
    let registration = register(NUMBERED, Options::default());
    let id = registration.id;
    assert!(find(id).is_some_and(|found| Arc::ptr_eq(&found, &registration)));
    free(&registration, Safety::None, None).expect("live");
    assert!(find(id).is_none());
    assert_eq!(set_callback(&registration, Safety::None, None), Err(AlreadyFreed));
    assert_eq!(set_dropped(&registration, None), Err(AlreadyFreed));
    assert_eq!(set_active(&registration, true), Err(AlreadyFreed));
    assert_eq!(free(&registration, Safety::None, None), Err(AlreadyFreed));
}
