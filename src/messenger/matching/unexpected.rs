// SPDX-License-Identifier: MIT OR Apache-2.0
//! The unexpected messages of a communicator: those that arrived before a matching receive was posted. A list has all
//! messages in order of arrival. A search that looks far into it builds an index for receives of its mask, three at a
//! time. MPI needs no more: the list answers receives with both wildcards directly. A search by a further mask walks
//! the list. Each side ([`MatchBits::side`]) has a list of its own, because no receive could take messages of both
//! lists. A third list, which no search looks at, has the messages that matched probes returned. Used by
//! [`super::Matching`]. Grade: hot. Threads: one at a time. Tests: `tests/`.

use super::index::{Index, LONG, SHORT};
use super::pattern::{MatchBits, Pattern};
use super::slab::{Entry, Handle, List, NONE, Slab};

/// Number of masks that have an index at a time.
const INDEXES: usize = 3;

/// A message of a matched probe, in [`Unexpected::count`].
const ASIDE: u64 = 1 << 32;

#[derive(Debug)]
enum Held<U> {
    /// The place is free, or will be at once.
    Taken,
    Queued(U),
    Probed(U),
}

impl<U> Held<U> {
    #[inline]
    fn into_message(self) -> Option<U> {
        match self {
            Held::Taken => None,
            Held::Queued(message) | Held::Probed(message) => Some(message),
        }
    }
}

#[derive(Debug)]
pub(super) struct Unexpected<U, E> {
    slab: Slab<E, Held<U>, INDEXES>,
    /// In order of arrival, by side.
    order: [List; 2],
    probed: List,
    /// Number of indexes, the first ones, that have the messages.
    indexed: usize,
    indexes: [Index<E>; INDEXES],
    /// Number of messages in `order`, plus [`ASIDE`] for each in `probed`: one test finds whether there are any.
    count: u64,
}

impl<U, E: MatchBits> Unexpected<U, E> {
    pub(super) const fn new() -> Self {
        Unexpected {
            slab: Slab::new(),
            order: [List::EMPTY; 2],
            probed: List::EMPTY,
            indexed: 0,
            indexes: [Index::new(E::NO_BITS, 0), Index::new(E::NO_BITS, 1), Index::new(E::NO_BITS, 2)],
            count: 0,
        }
    }

    /// Number of messages that a receive can find.
    pub(super) const fn len(&self) -> u32 {
        self.count as u32
    }

    /// Whether there are messages, those of matched probes included.
    pub(super) const fn has_messages(&self) -> bool {
        self.count > 0
    }

    #[inline]
    pub(super) fn insert(&mut self, envelope: E, message: U) -> Handle {
        self.count += 1;
        let handle = self.slab.push(&mut self.order[envelope.side()], envelope, Held::Queued(message));
        if self.indexed != 0 {
            self.index(handle.at());
        }
        handle
    }

    /// Removes the oldest message that the pattern takes; returns it and the number of messages compared.
    #[inline]
    pub(super) fn take(&mut self, pattern: Pattern<E>) -> (Option<(E, U)>, u32) {
        let list = &mut self.order[pattern.key.side()];
        let at = list.head;
        let Some(entry) = self.slab.get(at) else { return (None, 0) };
        let envelope = entry.key;
        if self.indexed != 0 || !pattern.takes(envelope) {
            return self.take_further(pattern);
        }
        self.count -= 1;
        let held = std::mem::replace(&mut self.slab.remove_head(list, at).payload, Held::Taken);
        (held.into_message().map(|message| (envelope, message)), 1)
    }

    #[inline(never)]
    fn take_further(&mut self, pattern: Pattern<E>) -> (Option<(E, U)>, u32) {
        let (at, attempts) = self.find(pattern);
        if at == NONE { (None, attempts) } else { (self.take_at(at), attempts) }
    }

    /// The place of the oldest message that the pattern takes, or [`NONE`], and the number of messages compared.
    pub(super) fn find(&mut self, pattern: Pattern<E>) -> (u32, u32) {
        if let Some(index) = self.indexes[..self.indexed].iter().find(|index| index.mask() == pattern.mask) {
            let mut attempts = 0;
            let at = index.first(&self.slab, pattern.key, &mut attempts);
            return (at, attempts);
        }
        let (at, attempts) = self.walk(pattern, LONG);
        if attempts > LONG { self.build_and_find(pattern) } else { (at, attempts) }
    }

    /// Removes the message at this place.
    pub(super) fn take_at(&mut self, at: u32) -> Option<(E, U)> {
        let entry = self.slab.at(at);
        let key = entry.key;
        let message = match std::mem::replace(&mut entry.payload, Held::Taken) {
            Held::Queued(message) => {
                if self.indexed != 0 {
                    self.unindex(at);
                }
                self.count -= 1;
                self.slab.remove(&mut self.order[key.side()], at);
                message
            }
            held => {
                let message = held.into_message()?;
                self.count -= ASIDE;
                self.slab.remove(&mut self.probed, at);
                message
            }
        };
        Some((key, message))
    }

    /// Sets the message at this place of the queue aside: afterwards only its handle leads to it.
    pub(super) fn set_aside(&mut self, at: u32) -> Option<(E, Handle)> {
        if self.indexed != 0 {
            self.unindex(at);
        }
        self.count += ASIDE - 1;
        let entry = self.slab.at(at);
        let key = entry.key;
        entry.payload = Held::Probed(std::mem::replace(&mut entry.payload, Held::Taken).into_message()?);
        self.slab.move_to(&mut self.order[key.side()], &mut self.probed, at);
        Some((key, self.slab.handle(at)))
    }

    #[inline]
    pub(super) fn resolve(&self, handle: Handle) -> Option<u32> {
        self.slab.resolve(handle)
    }

    #[inline]
    pub(super) fn get(&self, at: u32) -> Option<(E, &U)> {
        let entry = self.slab.get(at)?;
        match &entry.payload {
            Held::Taken => None,
            Held::Queued(message) | Held::Probed(message) => Some((entry.key, message)),
        }
    }

    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut U> {
        match &mut self.slab.get_mut(at)?.payload {
            Held::Taken => None,
            Held::Queued(message) | Held::Probed(message) => Some(message),
        }
    }

    /// Removes and returns the queued messages for which `is_gone` holds, in order of arrival within each list.
    pub(super) fn drop_queued(&mut self, mut is_gone: impl FnMut(E, &U) -> bool) -> Vec<U> {
        let queued = self.order.iter().flat_map(|list| self.slab.iter(list));
        let gone = queued.filter(|(_, entry)| match &entry.payload {
            Held::Queued(message) => is_gone(entry.key, message),
            Held::Taken | Held::Probed(_) => false,
        });
        let places: Vec<u32> = gone.map(|(at, _)| at).collect();
        places.into_iter().filter_map(|at| self.take_at(at)).map(|(_, message)| message).collect()
    }

    /// Returns all messages, in order of arrival within each list; those of matched probes last.
    pub(super) fn into_messages(mut self) -> Vec<(E, U)> {
        let lists = [&self.order[0], &self.order[1], &self.probed];
        let places: Vec<u32> = lists.iter().flat_map(|list| self.slab.iter(list)).map(|(at, _)| at).collect();
        places.into_iter().filter_map(|at| self.take_at(at)).collect()
    }

    /// Walks the list. Gives up if it returns more attempts than `most`.
    fn walk(&self, pattern: Pattern<E>, most: u32) -> (u32, u32) {
        let mut at = self.order[pattern.key.side()].head;
        let mut attempts = 0;
        while let Some(entry) = self.slab.get(at) {
            attempts += 1;
            if pattern.takes(entry.key) || attempts > most {
                break;
            }
            at = entry.next;
        }
        (at, attempts)
    }

    #[cold]
    #[inline(never)]
    fn build_and_find(&mut self, pattern: Pattern<E>) -> (u32, u32) {
        let Some(index) = self.indexes.get_mut(self.indexed) else { return self.walk(pattern, u32::MAX) };
        self.indexed += 1;
        index.set_mask(pattern.mask);
        for list in &self.order {
            let mut at = list.head;
            while at != NONE {
                index.push(&mut self.slab, at);
                at = self.slab.at(at).next;
            }
        }
        let mut attempts = LONG + 1;
        let at = index.first(&self.slab, pattern.key, &mut attempts);
        (at, attempts)
    }

    #[inline(never)]
    fn index(&mut self, at: u32) {
        for index in &mut self.indexes[..self.indexed] {
            index.push(&mut self.slab, at);
        }
    }

    /// Removes the message from the indexes. If few messages remain, empties all indexes.
    #[inline(never)]
    fn unindex(&mut self, at: u32) {
        for index in &mut self.indexes[..self.indexed] {
            index.remove(&mut self.slab, at);
        }
        if self.len() <= SHORT + 1 {
            for index in &mut self.indexes[..self.indexed] {
                index.clear(self.order.iter().flat_map(|list| self.slab.iter(list)).map(|(_, entry)| entry.key));
            }
            self.indexed = 0;
        }
    }
}

const _: () = assert!(size_of::<Entry<super::Envelope, Held<[u64; 4]>, INDEXES>>() - size_of::<[u64; 4]>() <= 64);
