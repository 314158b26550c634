// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several threads raise: each source stays ordered at every registration, and every loss is counted.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of events that each thread raises: more than any buffer holds.
const EACH: u32 = if cfg!(miri) { 600 } else { 5000 };

#[test]
fn every_source_is_ordered_at_every_registration_under_load() {
    let _alone = alone();
    let (direct, waiting) = (Seen::default(), Seen::default());
    let one = listen(Options { room: 1024, ..Options::default() }, direct.callback());
    let two = listen(buffered(1024), waiting.callback());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let deliverer = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                one.set_buffered(!one.is_buffered());
                deliver(100, Safety::ThreadSafe);
            }
        });
        let raising: Vec<_> = (0..4_u32)
            .map(|thread| scope.spawn(move || (0..EACH).for_each(|number| raise_number(thread << 20 | number))))
            .collect();
        for thread in raising {
            thread.join().expect("no panic");
        }
        stop.store(true, Ordering::Relaxed);
        deliverer.join().expect("no panic");
    });
    deliver_all();
    for (registration, seen) in [(&one, &direct), (&two, &waiting)] {
        let instances = seen.lock();
        assert_eq!(steps_back(&instances), 0);
        let mut next = HashMap::new();
        for word in instances.iter().map(|instance| instance.words[0] & 0xffff_ffff) {
            let before = next.insert(word >> 20, word);
            assert!(before.is_none_or(|before| before < word), "a thread's own order");
        }
        assert_eq!(instances.len() as u64 + registration.dropped(), u64::from(4 * EACH), "{registration:?}");
        assert!(instances.len() >= registration.room(), "as many as have room get through, however slowly");
        assert_eq!(registration.waiting(), 0);
    }
}

#[test]
fn a_callback_that_is_not_thread_safe_runs_from_delivery_alone_once_two_threads_raise() {
    let _alone = alone();
    let seen = Seen::default();
    raise_number(0);
    let registration = listen_to(NUMBERED, Safety::MpiRestricted, Options::default(), seen.callback());
    std::thread::spawn(|| raise_number(1)).join().expect("no panic");
    raise_number(2);
    assert_eq!((seen.numbers(), registration.waiting()), (vec![], 2));
    assert_eq!(deliver_all(), 2);
    assert_eq!(seen.numbers(), [1, 2]);
}

#[test]
fn a_thread_that_ends_leaves_its_source_to_the_next_and_timestamps_go_on() {
    let (_alone, seen, _registration) = listening(Options::default());
    let sources = source_count();
    for number in 0..100 {
        std::thread::spawn(move || raise_number(number)).join().expect("no panic");
    }
    let instances = seen.lock();
    assert_eq!(instances.len(), 100);
    assert_eq!(steps_back(&instances), 0);
    assert!(source_count() <= sources + 1, "one thread at a time needs one");
}

fn stage_elsewhere(events: u32) {
    std::thread::spawn(move || (0..events).for_each(stage_number)).join().expect("no panic");
}

fn stage_number(event: u32) {
    stage(Safety::MpiRestricted, || DeviceAsync { event, port: 0 });
}

#[test]
fn another_thread_delivers_the_staged_events_of_a_thread_that_has_ended() {
    let (_alone, seen, registration) = listening(Options { room: 2, ..Options::default() });
    let sources = source_count();
    for thread in 0..50 {
        std::thread::spawn(move || (0..10).for_each(|event| stage_number(10 * thread + event)))
            .join()
            .expect("no panic");
        // Like progress between two polls.
        deliver_due(Safety::MpiRestricted);
    }
    assert_eq!(seen.numbers(), (0..500).collect::<Vec<_>>());
    assert_eq!((registration.dropped(), registration.waiting()), (0, 0));
    assert!(source_count() <= sources + 1, "a source is used again once its events are delivered");
    assert_eq!(steps_back(&seen.lock()), 0);
}

#[test]
fn catch_up_all_delivers_the_staged_events_of_threads_that_have_ended() {
    let (_alone, seen, registration) = listening(Options::default());
    stage_elsewhere(3);
    catch_up_all(Safety::ThreadSafe);
    free(&registration, Safety::ThreadSafe, None).expect("once");
    assert_eq!((seen.numbers(), registration.dropped()), (vec![0, 1, 2], 0));
}

#[test]
fn a_source_delivers_events_of_all_types_in_order_even_with_several_threads() {
    let _alone = alone();
    std::thread::scope(|scope| scope.spawn(|| raise_number(99)).join().expect("no panic"));
    let seen = Seen::default();
    let _of_one = listen(Options::default(), seen.callback());
    let _of_other = listen_to(PutStarted::TYPE, Safety::ThreadSafe, Options::default(), seen.callback());
    stage_number(1);
    raise(Safety::MpiRestricted, PutStarted::default);
    stage_number(2);
    progress(Safety::MpiRestricted);
    raise(Safety::MpiRestricted, PutStarted::default);
    let instances = seen.lock();
    assert_eq!(steps_back(&instances), 0);
    assert_eq!(instances.len(), 4);
}

#[test]
fn a_staged_event_keeps_its_place_among_the_events_that_its_thread_raises() {
    let (_alone, seen, registration) = listening(Options { room: 4, ..Options::default() });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            raise_number(0);
            // More than the buffer holds: the rest stays staged in the thread, and is not overtaken.
            (1..=6).for_each(stage_number);
            deliver(usize::MAX, Safety::ThreadSafe);
            deliver(usize::MAX, Safety::ThreadSafe);
            (7..=8).for_each(stage_number);
            raise_number(9);
        });
    });
    deliver_all();
    let numbers = seen.numbers();
    assert!(numbers.is_sorted(), "{numbers:?}");
    assert_eq!(numbers.len() as u64 + registration.dropped(), 10);
}

#[test]
fn threads_beyond_the_number_of_sources_share_an_unordered_one() {
    let (_alone, seen, _registration) = listening(Options::default());
    let group = std::sync::Barrier::new(60);
    std::thread::scope(|scope| {
        for number in 0..60 {
            let group = &group;
            scope.spawn(move || {
                raise_number(number);
                group.wait();
                raise_number(number);
            });
        }
    });
    let instances = seen.lock();
    assert_eq!(instances.len(), 120);
    let mut of: HashMap<SourceId, usize> = HashMap::new();
    for instance in instances.iter() {
        *of.entry(instance.source).or_default() += 1;
    }
    for (source, count) in of {
        assert_eq!(source_info(source).ordered, count == 2, "{}: {count}", source_info(source).name);
    }
}

#[test]
fn the_first_source_always_exists_and_shows_the_hosts_time() {
    let first = SourceId::from_index(0).expect("always one");
    let before = HostClock::get().now();
    let now = timestamp(first).filter(|_| source_info(first).name.starts_with("host"));
    assert!(now.is_none_or(|now| now >= before && now <= HostClock::get().now()));
    assert!(SourceId::from_index(source_count()).is_none());
}

#[test]
fn an_event_of_a_thread_is_of_the_host_and_stamped_between_two_readings_of_its_clock() {
    let (_alone, seen, _registration) = listening(Options::default());
    let before = HostClock::get().now();
    raise_number(1);
    let instance = seen.lock()[0];
    assert!(instance.timestamp >= before && instance.timestamp <= HostClock::get().now());
    let info = source_info(instance.source);
    assert!(info.name.starts_with("host:") && info.ordered, "{info:?}");
    assert_eq!(info.ticks_per_second, HostClock::get().ticks_per_second());
    assert_eq!(to_host(instance.source, 5), Some(ConvertedTimestamp { ticks: 5, error: 0 }));
}
