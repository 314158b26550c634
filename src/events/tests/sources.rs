// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queries of tools about sources.

use super::*;
use crate::events::*;

#[test]
fn there_is_always_a_source_and_it_tells_the_hosts_time() {
    let first = SourceId::from_index(0).expect("always one");
    let before = HostClock::get().now();
    let now = timestamp(first).filter(|_| source_info(first).name.starts_with("host"));
    assert!(now.is_none_or(|now| now >= before && now <= HostClock::get().now()));
    assert!(SourceId::from_index(source_count()).is_none());
}

#[test]
fn an_event_of_a_thread_is_of_the_host_and_stamped_between_two_readings_of_its_clock() {
    let _alone = alone();
    let seen = Seen::default();
    let _registration = listen(Options::default(), seen.callback());
    let before = HostClock::get().now();
    raise_number(1);
    let instance = seen.lock()[0];
    assert!(instance.timestamp >= before && instance.timestamp <= HostClock::get().now());
    let info = source_info(instance.source);
    assert!(info.name.starts_with("host:") && info.ordered, "{info:?}");
    assert_eq!(info.ticks_per_second, HostClock::get().ticks_per_second());
    assert_eq!(to_host(instance.source, 5), Some(ConvertedTimestamp { ticks: 5, error: 0 }));
}

#[test]
fn a_source_that_threads_have_one_after_the_other_does_not_say_that_it_is_one_threads() {
    let _alone = alone();
    let seen = Seen::default();
    let _registration = listen(Options::default(), seen.callback());
    // More threads than there are sources for threads, so at least one gets the source of another.
    for _ in 0..SOURCES {
        std::thread::spawn(|| raise_number(1)).join().expect("no panic");
    }
    let sources: Vec<SourceId> = seen.lock().iter().map(|instance| instance.source).collect();
    let again = sources.iter().find(|source| sources.iter().filter(|other| other == source).count() > 1);
    let info = source_info(*again.expect("one that was left"));
    assert!(info.ordered && info.description.contains("one thread at a time; a thread that ends leaves"), "{info:?}");
}
