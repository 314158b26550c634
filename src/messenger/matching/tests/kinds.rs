// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kinds of envelopes for the histories: how receives and messages are named, which of them match by the letter of
//! the text, and random ones.

use crate::messenger::matching::{ADDR_UNSPEC, ANY_SOURCE, ANY_TAG, Envelope, MatchBits, Pattern, Tagged};
use proptest::prelude::*;
use std::fmt::Debug;

pub(super) trait Kind: Debug {
    type Envelope: MatchBits + Debug;
    type Receive: Copy + Debug;
    type Message: Copy + Debug + PartialEq;

    fn takes(receive: Self::Receive, message: Self::Message) -> bool;
    fn pattern(receive: Self::Receive) -> Pattern<Self::Envelope>;
    fn envelope(message: Self::Message) -> Self::Envelope;
    fn message(envelope: Self::Envelope) -> Self::Message;
    fn receives(ranks: i32) -> BoxedStrategy<Self::Receive>;
    fn messages(ranks: i32) -> BoxedStrategy<Self::Message>;
}

/// Source and tag.
#[derive(Debug)]
pub(super) struct Mpi;

fn mpi_tag() -> impl Strategy<Value = i32> {
    prop_oneof![6 => 0..4_i32, 1 => Just(i32::MAX), 2 => -3..=-2_i32, 1 => Just(i32::MIN)]
}

impl Kind for Mpi {
    type Envelope = Envelope;
    type Receive = (i32, i32);
    type Message = (i32, i32);

    fn takes(receive: (i32, i32), message: (i32, i32)) -> bool {
        (receive.0 == ANY_SOURCE || receive.0 == message.0)
            && (receive.1 == message.1 || receive.1 == ANY_TAG && message.1 >= 0)
    }

    fn pattern((source, tag): (i32, i32)) -> Pattern {
        Pattern::new(source, tag)
    }

    fn envelope((source, tag): (i32, i32)) -> Envelope {
        Envelope::new(source, tag)
    }

    fn message(envelope: Envelope) -> (i32, i32) {
        (envelope.source(), envelope.tag())
    }

    fn receives(ranks: i32) -> BoxedStrategy<(i32, i32)> {
        let source = prop_oneof![4 => 0..ranks, 1 => Just(ANY_SOURCE)];
        (source, prop_oneof![4 => mpi_tag(), 1 => Just(ANY_TAG)]).boxed()
    }

    fn messages(ranks: i32) -> BoxedStrategy<(i32, i32)> {
        (0..ranks, mpi_tag()).boxed()
    }
}

/// Source and tag; a receive also has the bits to ignore.
#[derive(Debug)]
pub(super) struct Libfabric;

/// Tags as MPIs make them: a context, a number, and a bit of the protocol.
fn tag() -> impl Strategy<Value = u64> {
    prop_oneof![
        12 => (0..2_u64, 0..4_u64, 0..2_u64).prop_map(|(context, tag, bit)| bit << 63 | context << 40 | tag),
        1 => Just(u64::MAX),
    ]
}

/// Few masks that are frequent, and so many others that not all of them have an index.
fn ignore() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => Just(0),
        4 => Just(1 << 63),
        4 => Just(1 << 63 | 0xffff_ffff),
        2 => Just(u64::MAX),
        2 => (0..4_u64, 0..2_u64).prop_map(|(bits, context)| bits | context << 40),
        1 => (0..64_u32).prop_map(|bit| !(1_u64 << bit)),
    ]
}

impl Kind for Libfabric {
    type Envelope = Tagged;
    type Receive = (Option<u64>, u64, u64);
    type Message = (u64, u64);

    fn takes((source, tag, ignore): (Option<u64>, u64, u64), message: (u64, u64)) -> bool {
        let is_from = source.is_none_or(|source| source == message.0);
        // The text of fi_tagged(3).
        is_from && (message.1 & !ignore) == (tag & !ignore)
    }

    fn pattern((source, tag, ignore): (Option<u64>, u64, u64)) -> Pattern<Tagged> {
        Pattern::tagged(source.unwrap_or(ADDR_UNSPEC), tag, ignore)
    }

    fn envelope((source, tag): (u64, u64)) -> Tagged {
        Tagged { source, tag, data: None }
    }

    fn message(envelope: Tagged) -> (u64, u64) {
        (envelope.source, envelope.tag)
    }

    fn receives(ranks: i32) -> BoxedStrategy<(Option<u64>, u64, u64)> {
        let source = prop_oneof![3 => (0..ranks as u64).prop_map(Some), 1 => Just(None)];
        (source, tag(), ignore()).boxed()
    }

    fn messages(ranks: i32) -> BoxedStrategy<(u64, u64)> {
        (0..ranks as u64, tag()).boxed()
    }
}
