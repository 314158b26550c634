// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raising within one thread: order, nesting, and what a callback may do.

use super::*;
use std::sync::OnceLock;

#[test]
fn every_registration_gets_an_event_before_those_that_its_callbacks_raise() {
    let _alone = alone();
    let _nesting = calling(NUMBERED, Safety::ThreadSafe, Options::default(), |instance, _, _| {
        if instance.value(0) == Some(Value::U32(1)) {
            raise_number(2);
            raise_number(3);
        }
    });
    let seen = Seen::default();
    let _after = listen(Options::default(), seen.callback());
    raise_number(1);
    assert_eq!(seen.numbers(), [1, 2, 3]);
    assert!(seen.lock().is_sorted_by_key(|instance| instance.timestamp));
}

#[test]
fn an_event_that_a_callback_raises_follows_the_whole_group_that_called_it() {
    let _alone = alone();
    let seen = Seen::default();
    let watching = seen.callback();
    let _registration = calling(NUMBERED, Safety::ThreadSafe, Options::default(), move |instance, own, level| {
        watching(instance, own, level);
        if instance.value(0) == Some(Value::U32(1)) {
            raise_number(3);
        }
    });
    let mut group = EventGroup::new(interest());
    for event in [1, 2] {
        group.add(|| DeviceAsync { event, port: 0 });
    }
    group.raise(host_timestamp, Safety::MpiRestricted);
    assert_eq!(seen.numbers(), [1, 2, 3]);
    assert!(seen.lock().is_sorted_by_key(|instance| instance.timestamp));
}

fn raise_as_of(moment: HostTimestamp, event: u32) {
    let mut group = EventGroup::new(interest());
    group.add(|| DeviceAsync { event, port: 0 });
    group.raise(|| moment, Safety::MpiRestricted);
}

#[test]
fn an_event_raised_with_an_earlier_time_gets_a_timestamp_not_before_the_last_one() {
    let (_alone, seen, _registration) = listening(Options::default());
    let before = host_timestamp();
    raise_number(1);
    raise_as_of(before, 2);
    assert_eq!(seen.numbers(), [1, 2]);
    assert!(seen.lock().is_sorted_by_key(|instance| instance.timestamp));
}

#[test]
fn a_thread_stamps_no_event_before_the_last_one_of_the_thread_that_had_its_source() {
    let (_alone, seen, _registration) = listening(Options::default());
    // Another thread of this process may take the source in between.
    let inherited = (0..50).any(|_| {
        let before = host_timestamp();
        std::thread::spawn(|| raise_number(1)).join().expect("no panic");
        std::thread::spawn(move || raise_as_of(before, 2)).join().expect("no panic");
        let instances = std::mem::take(&mut *seen.lock());
        let [first, second] = instances[..] else { panic!("two events") };
        assert!(first.source != second.source || first.timestamp <= second.timestamp);
        first.source == second.source
    });
    assert!(inherited);
}

#[test]
fn catch_up_delivers_a_staged_event_to_a_registration_that_is_then_freed() {
    let (_alone, seen, registration) = listening(Options::default());
    stage(Safety::ThreadSafe, || DeviceAsync { event: 7, port: 0 });
    catch_up(Safety::ThreadSafe);
    free(&registration, Safety::ThreadSafe, None).expect("live");
    assert_eq!(seen.numbers(), [7]);
}

#[test]
fn a_callback_that_raises_more_than_a_thread_can_stage_loses_and_counts_the_rest() {
    let _alone = alone();
    let seen = Seen::default();
    let flooding = calling(NUMBERED, Safety::ThreadSafe, Options::default(), |instance, _, _| {
        if instance.value(0) == Some(Value::U32(0)) {
            (1..=5000).for_each(raise_number);
        }
    });
    let watching = listen(Options::default(), seen.callback());
    raise_number(0);
    let got = seen.numbers();
    assert_eq!(got, (0..got.len() as u64).collect::<Vec<_>>(), "the first ones, in order");
    assert!(got.len() > 100);
    assert!(watching.dropped() > 0);
    assert_eq!(watching.dropped(), 5001 - got.len() as u64);
    assert_eq!(flooding.dropped(), watching.dropped());
}

#[test]
fn progress_delivers_a_staged_event_before_the_events_that_are_raised_later() {
    let (_alone, seen, _registration) = listening(Options::default());
    let stage_number = |event| stage(Safety::MpiRestricted, || DeviceAsync { event, port: 0 });
    stage_number(1);
    assert_eq!(seen.numbers(), []);
    progress(Safety::MpiRestricted);
    assert_eq!(seen.numbers(), [1]);
    stage_number(2);
    stage_number(3);
    raise_number(4);
    assert_eq!(seen.numbers(), [1, 2, 3, 4]);
    assert!(seen.lock().is_sorted_by_key(|instance| instance.timestamp));
}

#[test]
fn a_callback_may_register_another_which_gets_the_events_that_follow() {
    let _alone = alone();
    let late = Seen::default();
    let registered = Arc::new(OnceLock::new());
    let (seen, slot) = (late.clone(), Arc::clone(&registered));
    let _registration = calling(NUMBERED, Safety::ThreadSafe, Options::default(), move |_, _, _| {
        slot.get_or_init(|| listen(Options::default(), seen.callback()));
    });
    raise_number(1);
    raise_number(2);
    assert_eq!(late.numbers(), [2]);
}

#[test]
fn a_delivery_within_a_callback_delivers_nothing() {
    let (_alone, seen, buffer) = listening(buffered(8));
    let _registration = calling(NUMBERED, Safety::ThreadSafe, Options::default(), |_, _, _| {
        assert_eq!(deliver_all(), 0, "not from within");
    });
    raise_number(1);
    assert_eq!((seen.numbers().len(), buffer.waiting()), (0, 1));
    assert_eq!(deliver_all(), 1);
    assert_eq!(seen.numbers(), [1]);
}

#[test]
fn a_callback_that_panics_leaves_the_engine_usable() {
    let _alone = alone();
    let panicking = calling(NUMBERED, Safety::ThreadSafe, Options::default(), |instance, _, _| {
        assert_ne!(instance.value(0), Some(Value::U32(1)), "a tool's defect");
    });
    assert!(std::panic::catch_unwind(|| raise_number(1)).is_err());
    let seen = Seen::default();
    let _registration = listen(Options::default(), seen.callback());
    raise_number(2);
    let freed = Arc::new(Mutex::new(0));
    let count = Arc::clone(&freed);
    free(&panicking, Safety::None, Some(Box::new(move |_, _| *count.lock().expect("no panic") += 1))).expect("live");
    raise_number(3);
    assert_eq!((seen.numbers(), *freed.lock().expect("no panic")), (vec![2, 3], 1));
}

#[test]
fn the_counts_of_the_source_add_up() {
    let (_alone, seen, _direct) = listening(Options::default());
    let _buffered = listen(buffered(4), seen.callback());
    raise_number(0);
    let source = seen.lock()[0].source;
    let before = counts(source);
    (1..=9).for_each(raise_number);
    let now = counts(source);
    assert_eq!(now.raised - before.raised, 9);
    assert_eq!(now.delivered - before.delivered, 9);
    assert_eq!((now.buffered - before.buffered, now.dropped - before.dropped), (3, 6), "one was there already");
    assert_eq!(deliver_all(), 4);
    assert_eq!(counts(source).delivered - now.delivered, 4);
}
