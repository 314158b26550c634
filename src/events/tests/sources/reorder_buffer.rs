// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reorder buffer: its output is ordered and complete, and a late instance is refused, never inserted.

use crate::events::sources::reorder_buffer::{Limits, Refused, ReorderBuffer};
use crate::events::{EventInstance, SourceId, TypeId};
use proptest::prelude::*;

fn at(timestamp: u64, number: u64) -> EventInstance {
    EventInstance { event_type: TypeId(0), source: SourceId(0), timestamp, words: [number; 12] }
}

/// A buffer that holds up to `room` events, 1000 ticks of the host for an open batch, and 100 ticks for a late stamp.
fn buffer(room: usize) -> ReorderBuffer {
    ReorderBuffer::new(Limits { room, batch: 1000, lag: (100, 1000) })
}

/// The numbers of the events that are due.
fn due(order: &mut ReorderBuffer, host: u64, oldest: Option<u64>) -> Vec<u64> {
    order.note_complete(oldest);
    std::iter::from_fn(|| order.pop_due(host, oldest)).map(|instance| instance.words[0]).collect()
}

#[test]
fn an_event_is_due_once_no_batch_is_open_that_began_before_it() {
    let mut order = buffer(8);
    assert_eq!(order.hold(&at(500, 1), 10), Ok(()));
    assert_eq!(order.hold(&at(900, 2), 20), Ok(()));
    assert_eq!(due(&mut order, 30, Some(10)), []);
    assert_eq!(order.hold(&at(400, 3), 20), Ok(()));
    assert_eq!(due(&mut order, 30, Some(15)), [], "the earliest was submitted after");
    assert_eq!(due(&mut order, 30, Some(21)), [3, 1, 2]);
    assert_eq!(order.hold(&at(1000, 4), 0), Ok(()));
    assert_eq!(due(&mut order, 30, None), [4]);
}

#[test]
fn an_open_batch_delays_an_event_for_a_limited_time() {
    let mut order = buffer(8);
    assert_eq!(order.hold(&at(500, 1), 10), Ok(()));
    assert_eq!(due(&mut order, 1009, Some(10)), []);
    assert_eq!(due(&mut order, 1010, Some(10)), [1]);
}

#[test]
fn an_event_waits_only_as_long_as_the_adapter_was_seen_to_write_stamps_late() {
    let mut order = buffer(8);
    assert!(!order.holds_by_time());
    assert_eq!(order.hold(&at(500, 1), 0), Ok(()));
    assert_eq!(due(&mut order, 5, None), [1]);
    // The adapter writes a stamp that is 20 ticks earlier.
    assert_eq!(order.hold(&at(480, 2), 0), Err(Refused::Late));
    assert!(order.holds_by_time());
    assert_eq!(order.hold(&at(505, 3), 7), Ok(()));
    assert_eq!(due(&mut order, 206, None), [], "held for as long, from now on");
    assert_eq!(due(&mut order, 207, None), [3]);
    assert_eq!(order.hold(&at(600, 4), 300), Ok(()));
    assert_eq!(order.hold(&at(620, 5), 301), Ok(()));
    assert_eq!(due(&mut order, 302, None), [4], "one later by as much has come");
}

#[test]
fn the_buffer_refuses_an_event_earlier_than_the_last_released_one_and_accepts_an_equal_one() {
    let mut order = buffer(8);
    assert_eq!(order.hold(&at(50, 1), 0), Ok(()));
    assert!(order.pop_earliest().is_some());
    assert_eq!(order.hold(&at(49, 2), 0), Err(Refused::Late));
    assert_eq!(order.hold(&at(50, 3), 0), Ok(()));
}

#[test]
fn events_with_equal_stamps_leave_in_the_order_of_their_arrival() {
    let mut order = buffer(8);
    // The last two arrive after a later one.
    for (timestamp, number) in [(5, 0), (5, 1), (9, 4), (5, 2), (5, 3)] {
        assert_eq!(order.hold(&at(timestamp, number), 0), Ok(()));
    }
    let out: Vec<_> = std::iter::from_fn(|| order.pop_earliest()).map(|instance| instance.words[0]).collect();
    assert_eq!(out, [0, 1, 2, 3, 4]);
}

#[test]
fn a_half_full_buffer_releases_the_earliest_event_and_a_full_one_refuses() {
    let mut order = buffer(4);
    for number in 0..4 {
        assert_eq!(order.hold(&at(100 - number, number), 0), Ok(()));
    }
    assert_eq!(order.hold(&at(200, 9), 0), Err(Refused::Full));
    assert_eq!(order.pop_due(1, Some(0)).map(|instance| instance.timestamp), Some(97));
    assert_eq!(order.pop_due(1, Some(0)).map(|instance| instance.timestamp), Some(98));
    assert_eq!(order.pop_due(1, Some(0)), None, "two are within half of the room");
}

proptest! {
    #[test]
    fn the_buffer_returns_every_accepted_event_in_the_order_of_timestamps(
        room in 1_usize..64,
        lag in 0_u64..200,
        steps in proptest::collection::vec((0_u64..50, 0_u64..150, any::<bool>(), any::<bool>()), 0..400),
    ) {
        let mut order = ReorderBuffer::new(Limits { room, batch: 500, lag: (lag, lag) });
        let (mut host, mut kept, mut out) = (1000, Vec::new(), Vec::new());
        let mut open = None;
        for (number, (later, behind, begin, look)) in steps.into_iter().enumerate() {
            host += later + 1;
            open = begin.then(|| open.unwrap_or(host));
            let instance = at(host - behind, number as u64);
            match order.hold(&instance, host) {
                Ok(()) => kept.push((instance.timestamp, number as u64)),
                Err(Refused::Late) => prop_assert!(out.last().is_some_and(|&(last, _)| instance.timestamp < last)),
                Err(other) => prop_assert_eq!((other, order.len()), (Refused::Full, room)),
            }
            if look {
                order.note_complete(open);
                while let Some(instance) = order.pop_due(host, open) {
                    out.push((instance.timestamp, instance.words[0]));
                }
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
    fn the_buffer_accepts_every_event_of_batches_however_their_threads_overtake_each_other(
        steps in proptest::collection::vec((1_u64..50, 0_usize..3, any::<bool>()), 0..300),
    ) {
        let mut order = ReorderBuffer::new(Limits { room: 4096, batch: u64::MAX, lag: (100, 100) });
        // The open batches: when each began, and the stamps that its thread has yet to submit.
        let mut open: Vec<(u64, Vec<u64>)> = Vec::new();
        let mut host = 1000;
        for (later, which, begin) in steps {
            host += later;
            if begin {
                open.push((host, vec![host - 1, host]));
            } else if let Some((began, mut stamps)) = (which < open.len()).then(|| open.remove(which)) {
                let newest = open.iter().map(|(began, _)| *began).max().unwrap_or(began).max(began);
                prop_assert_eq!(order.hold(&at(stamps.pop().expect("two at first"), 0), newest), Ok(()));
                if !stamps.is_empty() {
                    open.insert(which, (began, stamps));
                }
            }
            let oldest = open.first().map(|(began, _)| *began);
            order.note_complete(oldest);
            while order.pop_due(host, oldest).is_some() {}
        }
    }
}
