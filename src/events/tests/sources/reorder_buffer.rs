// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reorder buffer: its output is ordered and complete, and a late instance is refused, never inserted.

use crate::events::sources::reorder_buffer::{Refused, ReorderBuffer};
use crate::events::{EventInstance, SourceId, TypeId};
use proptest::prelude::*;

fn at(timestamp: u64, number: u64) -> EventInstance {
    EventInstance { event_type: TypeId(0), source: SourceId(0), timestamp, words: [number; 12] }
}

#[test]
fn an_event_waits_until_one_later_by_the_window_comes_or_the_window_has_passed() {
    let mut order = ReorderBuffer::new(8, (100, 1000));
    assert_eq!(order.hold(&at(500, 1), 0), Ok(()));
    assert_eq!(order.pop_due(999, false), None);
    assert_eq!(order.hold(&at(450, 2), 10), Ok(()));
    assert_eq!(order.hold(&at(550, 3), 20), Ok(()));
    assert_eq!(order.pop_due(30, false).map(|instance| instance.words[0]), Some(2), "overtaken by the window");
    assert_eq!(order.pop_due(30, false), None);
    assert_eq!(order.pop_due(1000, false).map(|instance| instance.words[0]), Some(1), "held as long as the window");
    assert_eq!(order.pop_due(1000, false), None);
    assert_eq!(order.pop_due(1020, false).map(|instance| instance.words[0]), Some(3));
    assert_eq!(order.len(), 0);
}

#[test]
fn a_complete_event_waits_only_as_long_as_the_adapter_was_seen_to_write_stamps_late() {
    let mut order = ReorderBuffer::new(8, (100, 1000));
    assert_eq!(order.hold(&at(500, 1), 5), Ok(()));
    order.set_complete_until(6);
    assert_eq!(order.hold(&at(505, 2), 6), Ok(()));
    assert_eq!(order.pop_due(6, false).map(|instance| instance.words[0]), Some(1));
    assert_eq!(order.pop_due(6, false), None, "it came after");
    order.set_complete_until(7);
    // The adapter writes a stamp that is 20 ticks earlier.
    assert_eq!(order.hold(&at(485, 3), 7), Err(Refused::Late));
    assert_eq!(order.pop_due(7, false), None, "held for as long, from now on");
    assert_eq!(order.pop_due(205, false), None);
    assert_eq!(order.pop_due(206, false).map(|instance| instance.words[0]), Some(2));
    assert_eq!(order.hold(&at(600, 4), 300), Ok(()));
    assert_eq!(order.hold(&at(620, 5), 301), Ok(()));
    order.set_complete_until(302);
    assert_eq!(order.pop_due(301, false).map(|instance| instance.words[0]), Some(4), "one later by as much has come");
    assert_eq!(order.pop_due(301, false), None);
}

#[test]
fn an_event_waits_far_beyond_the_window_while_an_earlier_one_is_known_to_come() {
    let mut order = ReorderBuffer::new(8, (100, 1000));
    assert_eq!(order.hold(&at(500, 1), 10), Ok(()));
    assert_eq!(order.hold(&at(900, 2), 20), Ok(()));
    assert_eq!(order.pop_due(5000, true), None);
    assert_eq!(order.hold(&at(400, 3), 5000), Ok(()));
    order.set_complete_until(15);
    let out: Vec<_> = std::iter::from_fn(|| order.pop_due(5000, true)).map(|instance| instance.words[0]).collect();
    assert_eq!(out, [], "the earliest was handed in after");
    order.set_complete_until(5001);
    let out: Vec<_> = std::iter::from_fn(|| order.pop_due(5000, true)).map(|instance| instance.words[0]).collect();
    assert_eq!(out, [3, 1, 2]);
    assert_eq!(order.hold(&at(1000, 4), 6000), Ok(()));
    assert_eq!(order.pop_due(206_000, true).map(|instance| instance.words[0]), Some(4), "not for ever");
}

#[test]
fn the_buffer_refuses_an_event_earlier_than_the_last_released_one_and_accepts_an_equal_one() {
    let mut order = ReorderBuffer::new(8, (10, 10));
    assert_eq!(order.hold(&at(50, 1), 0), Ok(()));
    assert!(order.pop_earliest().is_some());
    assert_eq!(order.hold(&at(49, 2), 0), Err(Refused::Late));
    assert_eq!(order.hold(&at(50, 3), 0), Ok(()));
}

#[test]
fn events_with_equal_stamps_leave_in_the_order_of_their_arrival() {
    let mut order = ReorderBuffer::new(8, (10, 10));
    // The last two arrive after a later one.
    for (timestamp, number) in [(5, 0), (5, 1), (9, 4), (5, 2), (5, 3)] {
        assert_eq!(order.hold(&at(timestamp, number), 0), Ok(()));
    }
    let out: Vec<_> = std::iter::from_fn(|| order.pop_earliest()).map(|instance| instance.words[0]).collect();
    assert_eq!(out, [0, 1, 2, 3, 4]);
}

#[test]
fn a_half_full_buffer_releases_the_earliest_event_and_a_full_one_refuses() {
    let mut order = ReorderBuffer::new(4, (1000, 1000));
    for number in 0..4 {
        assert_eq!(order.hold(&at(100 - number, number), 0), Ok(()));
    }
    assert_eq!(order.hold(&at(200, 9), 0), Err(Refused::Full));
    assert_eq!(order.pop_due(0, false).map(|instance| instance.timestamp), Some(97));
    assert_eq!(order.pop_due(0, false).map(|instance| instance.timestamp), Some(98));
    assert_eq!(order.pop_due(0, false), None, "two are within half of the room");
}

proptest! {
    #[test]
    fn the_buffer_returns_every_accepted_event_in_the_order_of_timestamps(
        room in 1_usize..64,
        window in 0_u64..200,
        steps in proptest::collection::vec((0_u64..50, 0_u64..150, any::<bool>()), 0..400),
    ) {
        let mut order = ReorderBuffer::new(room, (window, window));
        let (mut host, mut kept, mut out) = (1000, Vec::new(), Vec::new());
        for (number, (later, lag, look)) in steps.into_iter().enumerate() {
            host += later;
            let instance = at(host - lag, number as u64);
            match order.hold(&instance, host) {
                Ok(()) => kept.push((instance.timestamp, number as u64)),
                Err(Refused::Late) => prop_assert!(out.last().is_some_and(|&(last, _)| instance.timestamp < last)),
                Err(other) => prop_assert_eq!((other, order.len()), (Refused::Full, room)),
            }
            while look && let Some(instance) = order.pop_due(host, false) {
                out.push((instance.timestamp, instance.words[0]));
            }
        }
        out.extend(std::iter::from_fn(|| order.pop_earliest()).map(|instance| (instance.timestamp, instance.words[0])));
        prop_assert!(out.is_sorted_by_key(|&(timestamp, _)| timestamp));
        kept.sort_unstable();
        let mut sorted = out.clone();
        sorted.sort_unstable();
        prop_assert_eq!(sorted, kept);
    }

    #[test]
    fn the_buffer_accepts_every_event_that_is_late_by_less_than_the_window(
        steps in proptest::collection::vec((1_u64..50, 0_u64..100), 0..300),
    ) {
        let mut order = ReorderBuffer::new(4096, (100, 100));
        let mut host = 1000;
        for (later, lag) in steps {
            host += later;
            prop_assert_eq!(order.hold(&at(host - lag, 0), host), Ok(()));
            while order.pop_due(host, false).is_some() {}
        }
    }
}
