// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbered messages, in and out of order.

use crate::matching::{Envelope, Matching, Message, Turn};
use proptest::prelude::*;

type Numbered = Matching<(), u32>;

/// What the caller does with a numbered message; returns the numbers that arrived, in order.
fn deliver(matching: &mut Numbered, source: i32, number: u32, arrived: &mut Vec<u32>) -> Turn {
    let turn = matching.turn(source, number);
    match turn {
        Turn::Now => {
            arrived.push(number);
            while let Some(Message { message, .. }) = matching.release(source) {
                arrived.push(message);
            }
        }
        Turn::Early => matching.hold(Envelope::new(source, 5), number, number),
        Turn::Duplicate | Turn::NoSuchSource => {}
    }
    turn
}

#[test]
fn messages_in_order_are_not_held() {
    let (mut matching, mut arrived) = (Numbered::new(4), Vec::new());
    for number in 0..3 {
        assert_eq!(deliver(&mut matching, 3, number, &mut arrived), Turn::Now);
    }
    assert_eq!((arrived, matching.held()), (vec![0, 1, 2], 0));
}

#[test]
fn early_messages_are_released_in_order_when_the_missing_one_comes() {
    let (mut matching, mut arrived) = (Numbered::new(4), Vec::new());
    for number in [3, 1, 2, 5] {
        assert_eq!(deliver(&mut matching, 0, number, &mut arrived), Turn::Early);
    }
    assert_eq!(matching.held(), 4);
    assert_eq!(deliver(&mut matching, 0, 0, &mut arrived), Turn::Now);
    assert_eq!((&arrived[..], matching.held()), (&[0, 1, 2, 3][..], 1));
    let _ = deliver(&mut matching, 0, 4, &mut arrived);
    assert_eq!((arrived, matching.held()), (vec![0, 1, 2, 3, 4, 5], 0));
}

#[test]
fn a_sender_does_not_wait_for_another() {
    let (mut matching, mut arrived) = (Numbered::new(4), Vec::new());
    assert_eq!(deliver(&mut matching, 1, 1, &mut arrived), Turn::Early);
    assert_eq!(deliver(&mut matching, 2, 0, &mut arrived), Turn::Now);
    assert_eq!(matching.held(), 1);
}

#[test]
fn what_came_before_is_a_duplicate_whether_it_has_arrived_or_is_held() {
    let (mut matching, mut arrived) = (Numbered::new(4), Vec::new());
    let _ = deliver(&mut matching, 1, 0, &mut arrived);
    assert_eq!(deliver(&mut matching, 1, 0, &mut arrived), Turn::Duplicate);
    assert_eq!(deliver(&mut matching, 1, 2, &mut arrived), Turn::Early);
    assert_eq!(deliver(&mut matching, 1, 2, &mut arrived), Turn::Duplicate);
    assert_eq!((arrived, matching.held()), (vec![0], 1));
}

#[test]
fn a_rank_that_the_communicator_does_not_have_is_refused_and_costs_no_memory() {
    let mut matching = Numbered::new(4);
    for source in [4, i32::MAX, -1, i32::MIN] {
        assert_eq!(matching.turn(source, 0), Turn::NoSuchSource);
        assert_eq!(matching.release(source), None);
    }
    assert_eq!(matching.turn(3, 0), Turn::Now);
}

#[test]
fn the_tag_and_source_of_a_held_message_come_back_with_it() {
    let mut matching = Numbered::new(4);
    assert_eq!(matching.turn(2, 1), Turn::Early);
    matching.hold(Envelope::new(2, -7), 1, 9);
    assert_eq!(matching.turn(2, 0), Turn::Now);
    assert_eq!(matching.release(2), Some(Message { envelope: Envelope::new(2, -7), message: 9 }));
}

proptest! {
    #[test]
    fn messages_that_ports_deliver_in_any_interleaving_arrive_once_and_in_order(
        ports in prop::collection::vec(any::<prop::sample::Index>(), 1..200),
        // Numbers have wrapped before.
        first in prop_oneof![Just(0_u32), (0..100_u32).prop_map(|before| u32::MAX - before)],
    ) {
        let (mut matching, mut arrived) = (Numbered::new(1), Vec::new());
        // What numbers have come to is reached by counting; the test takes the short way.
        matching.sequence.await_from(0, first);
        // Messages in any order, every third of them twice.
        let mut under_way: Vec<u32> = (0..ports.len() as u32).map(|number| first.wrapping_add(number)).collect();
        under_way.extend((0..ports.len() as u32).step_by(3).map(|number| first.wrapping_add(number)));
        let expected = under_way[..ports.len()].to_vec();
        let mut choice = ports.iter().cycle();
        while !under_way.is_empty() {
            let at = choice.next().unwrap().index(under_way.len().min(40));
            let _ = deliver(&mut matching, 0, under_way.remove(at), &mut arrived);
        }
        prop_assert_eq!(arrived, expected);
        prop_assert_eq!(matching.held(), 0);
    }
}
