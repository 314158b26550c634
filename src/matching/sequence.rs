// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order of one sender's messages where they come by several ports: what is early is held until its turn.
//!
//! A message carries a number, or none. Where a pair of processes has one path, and for as long as it has one, no
//! message has a number, and the receiver, which sees that in the header, calls [`super::Matching::arrive`]: this file
//! costs it nothing, not even a test, and no memory, as the counters are made when the first number arrives. Whether
//! they number is agreed between two processes when they connect, and never changes: messages without a number would be
//! in no order with those that have one.
//!
//! Numbers count the messages of one sender in one communicator from 0 and have 32 bits. With 16, a port that stands
//! still for two seconds while another goes on would let more pass than they can tell apart; the bits are needed only
//! where there are several ports. Less than 2^31 may be outstanding. What has been seen before is a duplicate, as after
//! a recovery that sends again what its connection had perhaps delivered.
//!
//! Used by [`super::Matching`]. Path: hot for a message in its turn, two loads and a store; pending for an early one: a
//! lookup, however many are early. Threads: one at a time. Tests: `tests/order.rs`.

use super::index::Index;
use super::pattern::{EXACT, Envelope};
use super::slab::{List, NONE, Slab};

/// Whether it is a message's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Turn {
    /// It is; the next number is awaited now. The caller has it matched, then releases what was held for after it.
    Now,
    /// An earlier one is missing: the caller has it held.
    Early,
    /// It has come before: the caller throws it away.
    Duplicate,
    /// The communicator has no such rank: what arrived is damaged.
    NoSuchSource,
}

/// The counters and the early messages of a communicator.
#[derive(Debug)]
pub(super) struct Sequence<U> {
    /// How many ranks may send here.
    sources: u32,
    /// The number awaited of each; as long as the greatest rank that has sent one.
    awaited: Vec<u32>,
    /// Early messages: key is source and number.
    slab: Slab<Option<(i32, U)>, 1>,
    index: Index,
    all: List,
    len: u32,
}

const fn key(source: u32, number: u32) -> u64 {
    (source as u64) << 32 | number as u64
}

impl<U> Sequence<U> {
    pub(super) const fn new(sources: u32) -> Self {
        Sequence {
            sources,
            awaited: Vec::new(),
            slab: Slab::new(),
            index: Index::new(EXACT, 0),
            all: List::EMPTY,
            len: 0,
        }
    }

    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    /// Whether it is the turn of the message with this number.
    #[inline]
    pub(super) fn turn(&mut self, source: i32, number: u32) -> Turn {
        match self.awaited.get_mut(source as usize) {
            Some(awaited) if *awaited == number => {
                *awaited = awaited.wrapping_add(1);
                Turn::Now
            }
            _ => self.not_now(source as u32, number),
        }
    }

    #[cold]
    #[inline(never)]
    fn not_now(&mut self, source: u32, number: u32) -> Turn {
        if source >= self.sources {
            return Turn::NoSuchSource;
        }
        if source as usize >= self.awaited.len() {
            self.awaited.resize(source as usize + 1, 0);
            return self.turn(source as i32, number);
        }
        let ahead = number.wrapping_sub(self.awaited[source as usize]);
        let is_held = self.index.first(&self.slab, key(source, number), &mut 0) != NONE;
        if ahead > u32::MAX / 2 || is_held { Turn::Duplicate } else { Turn::Early }
    }

    /// Holds an early message.
    pub(super) fn hold(&mut self, envelope: Envelope, number: u32, message: U) {
        let key = key(envelope.source() as u32, number);
        let handle = self.slab.push(&mut self.all, key, Some((envelope.tag(), message)));
        self.index.push(&mut self.slab, handle.at());
        self.len += 1;
    }

    /// The held message of this sender whose turn it is; the next number is awaited then.
    #[inline]
    pub(super) fn release(&mut self, source: i32) -> Option<(Envelope, U)> {
        if self.len == 0 { None } else { self.release_held(source) }
    }

    #[inline(never)]
    fn release_held(&mut self, source: i32) -> Option<(Envelope, U)> {
        let awaited = self.awaited.get_mut(source as usize)?;
        let at = self.index.first(&self.slab, key(source as u32, *awaited), &mut 0);
        if at == NONE {
            return None;
        }
        *awaited = awaited.wrapping_add(1);
        self.index.remove(&mut self.slab, at);
        self.len -= 1;
        let (tag, message) = self.slab.remove(&mut self.all, at).payload.take()?;
        Some((Envelope::new(source, tag), message))
    }

    /// As if this rank's messages up to the one before `number` had come.
    #[cfg(test)]
    pub(super) fn await_from(&mut self, source: u32, number: u32) {
        self.awaited.resize(source as usize + 1, 0);
        self.awaited[source as usize] = number;
    }

    /// What is held, in order of arrival.
    pub(super) fn into_messages(mut self) -> Vec<(Envelope, U)> {
        let places: Vec<u32> = self.slab.iter(&self.all).map(|(at, _)| at).collect();
        let of = |at| {
            let entry = self.slab.at(at);
            let source = (entry.key >> 32) as i32;
            entry.payload.take().map(|(tag, message)| (Envelope::new(source, tag), message))
        };
        places.into_iter().filter_map(of).collect()
    }
}
