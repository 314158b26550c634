// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each rule of MPI's matching on its own.

use super::{Numbered, arrive, insert, post, unexpected};
use crate::messenger::matching::{ANY_SOURCE, ANY_TAG, Message, MessageHandle, Pattern, ReceiveHandle};

#[test]
fn a_receive_that_names_source_and_tag_takes_no_other_message() {
    let mut matching = Numbered::new();
    insert(&mut matching, 1, 5, 1);
    assert_eq!(arrive(&mut matching, 1, 6, 10), None);
    assert_eq!(arrive(&mut matching, 2, 5, 11), None);
    assert_eq!(arrive(&mut matching, 1, 5, 12), Some(1));
    assert_eq!((matching.posted(), matching.unexpected()), (0, 2));
}

#[test]
fn receives_get_the_messages_of_one_sender_in_order_whether_expected_or_not() {
    let mut matching = Numbered::new();
    unexpected(&mut matching, 1, 5, 10);
    unexpected(&mut matching, 1, 5, 11);
    assert_eq!(post(&mut matching, 1, 5, 1), Some(10));
    assert_eq!(post(&mut matching, 1, ANY_TAG, 2), Some(11));
    insert(&mut matching, 1, 5, 3);
    insert(&mut matching, 1, 5, 4);
    assert_eq!(arrive(&mut matching, 1, 5, 12), Some(3));
    assert_eq!(arrive(&mut matching, 1, 5, 13), Some(4));
}

#[test]
fn a_message_goes_to_the_receive_posted_first_whichever_wildcards_each_has() {
    let patterns = [(1, 5), (ANY_SOURCE, 5), (1, ANY_TAG), (ANY_SOURCE, ANY_TAG)];
    for first in 0..patterns.len() {
        let mut matching = Numbered::new();
        for turn in 0..patterns.len() {
            let (source, tag) = patterns[(first + turn) % patterns.len()];
            insert(&mut matching, source, tag, turn as u32);
        }
        let taken: Vec<_> = (0..4).map(|_| arrive(&mut matching, 1, 5, 9)).collect();
        assert_eq!(taken, [Some(0), Some(1), Some(2), Some(3)]);
    }
}

#[test]
fn a_receive_from_any_source_takes_the_message_that_arrived_first() {
    let mut matching = Numbered::new();
    unexpected(&mut matching, 3, 5, 10);
    unexpected(&mut matching, 1, 5, 11);
    assert_eq!(post(&mut matching, ANY_SOURCE, 5, 1), Some(10));
    assert_eq!(post(&mut matching, ANY_SOURCE, ANY_TAG, 2), Some(11));
}

#[test]
fn any_tag_takes_tag_0_and_no_negative_one() {
    for source in [1, ANY_SOURCE] {
        let mut matching = Numbered::new();
        unexpected(&mut matching, 1, -2, 10);
        unexpected(&mut matching, 1, i32::MIN, 11);
        insert(&mut matching, source, ANY_TAG, 1);
        assert_eq!(arrive(&mut matching, 1, -1_073_741_822, 12), None);
        assert_eq!(arrive(&mut matching, 1, 0, 13), Some(1));
        assert_eq!(post(&mut matching, source, i32::MIN, 2), Some(11));
        assert_eq!(post(&mut matching, source, -2, 3), Some(10));
    }
}

#[test]
fn tags_and_ranks_have_32_bits() {
    let mut matching = Numbered::new();
    insert(&mut matching, 0x10001, 5, 1);
    insert(&mut matching, 1, 0x10005, 2);
    insert(&mut matching, i32::MAX, i32::MAX, 3);
    assert_eq!(arrive(&mut matching, 1, 5, 10), None);
    assert_eq!(arrive(&mut matching, 1, 0x10005, 11), Some(2));
    assert_eq!(arrive(&mut matching, 0x10001, 5, 12), Some(1));
    assert_eq!(arrive(&mut matching, i32::MAX, i32::MAX, 13), Some(3));
}

#[test]
fn a_probe_shows_the_message_that_a_receive_would_take_and_leaves_it() {
    let mut matching = Numbered::new();
    assert_eq!(matching.probe(Pattern::new(ANY_SOURCE, ANY_TAG)).found, None);
    unexpected(&mut matching, 2, 5, 10);
    unexpected(&mut matching, 2, 6, 11);
    for _ in 0..2 {
        let Message { envelope, message } = matching.probe(Pattern::new(ANY_SOURCE, 6)).found.unwrap();
        assert_eq!((envelope.source(), envelope.tag(), *message), (2, 6, 11));
    }
    assert_eq!(post(&mut matching, 2, ANY_TAG, 1), Some(10));
}

#[test]
fn only_its_handle_leads_to_the_message_of_a_matched_probe() {
    let mut matching = Numbered::new();
    unexpected(&mut matching, 2, 5, 10);
    unexpected(&mut matching, 2, 5, 11);
    let handle = matching.matched_probe(Pattern::new(2, 5)).found.unwrap().message;
    assert_eq!(matching.unexpected(), 1);
    assert_eq!(post(&mut matching, ANY_SOURCE, ANY_TAG, 1), Some(11));
    insert(&mut matching, ANY_SOURCE, ANY_TAG, 2);
    assert_eq!(matching.message_mut(handle).copied(), Some(10));
    let handle = MessageHandle::from_bits(handle.bits());
    assert_eq!(matching.take(handle).unwrap().message, 10);
    assert_eq!(matching.take(handle), None);
    assert_eq!(matching.message_mut(handle), None);
}

#[test]
fn a_handle_of_an_unexpected_message_stays_valid_after_a_matched_probe() {
    let mut matching = Numbered::new();
    let handle = unexpected(&mut matching, 2, 5, 10);
    *matching.message_mut(handle).unwrap() = 20;
    assert_eq!(matching.matched_probe(Pattern::new(2, 5)).found.unwrap().message, handle);
    assert_eq!(matching.take(handle).unwrap().message, 20);
}

#[test]
fn a_cancelled_receive_takes_nothing_and_one_that_was_matched_is_not_cancelled() {
    let mut matching = Numbered::new();
    let first = insert(&mut matching, 1, 5, 1);
    let second = insert(&mut matching, 1, 5, 2);
    let third = insert(&mut matching, 1, 5, 3);
    assert!(!matching.cancel(second, 1), "it is another request's");
    assert!(matching.cancel(ReceiveHandle::from_bits(second.bits()), 2));
    assert!(!matching.cancel(second, 2));
    assert_eq!(arrive(&mut matching, 1, 5, 10), Some(1));
    assert!(!matching.cancel(first, 1));
    assert_eq!(arrive(&mut matching, 1, 5, 11), Some(3));
    // The place of the second receive has another receive now.
    insert(&mut matching, 1, 5, 4);
    assert!(![(first, 1), (second, 2), (third, 3)].iter().any(|(handle, request)| matching.cancel(*handle, *request)));
    assert!(!matching.cancel(ReceiveHandle::from_bits(0), 4));
}

#[test]
fn a_freed_communicator_returns_its_waiting_receives_and_messages() {
    let mut matching = Numbered::new();
    insert(&mut matching, 1, 5, 1);
    insert(&mut matching, ANY_SOURCE, -2, 2);
    unexpected(&mut matching, 2, 7, 10);
    unexpected(&mut matching, 2, 6, 11);
    unexpected(&mut matching, 2, -9, 12);
    matching.matched_probe(Pattern::new(2, 7)).found.unwrap();
    let remains = matching.into_remains();
    assert_eq!(remains.receives, [1, 2]);
    let tags = remains.messages.iter().map(|message| (message.envelope.tag(), message.message));
    assert_eq!(tags.collect::<Vec<_>>(), [(6, 11), (-9, 12), (7, 10)]);
}
