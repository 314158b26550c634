// SPDX-License-Identifier: MIT OR Apache-2.0
//! The unexpected messages of a communicator: those that arrived before a matching receive was posted. A list has all
//! messages in order of arrival; it answers receives with both wildcards directly. The other receives search in one of
//! three ways: by source and tag, by tag, or by source. When the list becomes long, each way that receives use gets an
//! index. Messages with negative tags have a list of their own, because no receive could take messages of both lists. A
//! third list, which no search looks at, has the messages that matched probes returned. Used by [`super::Matching`].
//! Path: hot. Threads: one at a time. Tests: `tests/`.

use super::index::{Index, LONG, SHORT};
use super::pattern::{Envelope, Pattern, SPECIFIED, class, class_of, side};
use super::slab::{Entry, Handle, List, NONE, Slab};

/// Number of ways: every class but the last has one.
const WAYS: usize = class::ANY;

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
pub(super) struct Unexpected<U> {
    slab: Slab<Held<U>, WAYS>,
    /// In order of arrival: with tags of at least 0, with negative tags.
    order: [List; 2],
    probed: List,
    /// One bit per way: whether its index has the messages.
    indexed: u32,
    indexes: [Index; WAYS],
    len: u32,
}

impl<U> Unexpected<U> {
    pub(super) const fn new() -> Self {
        Unexpected {
            slab: Slab::new(),
            order: [List::EMPTY; 2],
            probed: List::EMPTY,
            indexed: 0,
            indexes: [
                Index::new(SPECIFIED[class::EXACT], class::EXACT),
                Index::new(SPECIFIED[class::ANY_SOURCE], class::ANY_SOURCE),
                Index::new(SPECIFIED[class::ANY_TAG], class::ANY_TAG),
            ],
            len: 0,
        }
    }

    /// Number of messages that a receive can find.
    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub(super) fn insert(&mut self, envelope: Envelope, message: U) -> Handle {
        let key = envelope.key();
        self.len += 1;
        let handle = self.slab.push(&mut self.order[side(key)], key, Held::Queued(message));
        if self.indexed != 0 {
            self.index_anew(handle.at());
        }
        handle
    }

    /// Removes the oldest message that the pattern takes; returns it and the number of messages compared.
    #[inline]
    pub(super) fn take(&mut self, pattern: Pattern) -> (Option<(Envelope, U)>, u32) {
        let list = &mut self.order[side(pattern.key())];
        let at = list.head;
        let Some(entry) = self.slab.get(at) else { return (None, 0) };
        let envelope = Envelope::from_key(entry.key);
        if self.indexed != 0 || !pattern.takes(envelope) {
            return self.take_further(pattern);
        }
        self.len -= 1;
        let held = std::mem::replace(&mut self.slab.remove_head(list, at).payload, Held::Taken);
        (held.into_message().map(|message| (envelope, message)), 1)
    }

    #[inline(never)]
    fn take_further(&mut self, pattern: Pattern) -> (Option<(Envelope, U)>, u32) {
        let (at, attempts) = self.find(pattern);
        if at == NONE { (None, attempts) } else { (self.take_at(at), attempts) }
    }

    /// The place of the oldest message that the pattern takes, or [`NONE`], and the number of messages compared.
    pub(super) fn find(&mut self, pattern: Pattern) -> (u32, u32) {
        if self.indexed != 0 {
            return self.find_long(pattern);
        }
        let (at, attempts) = self.walk(pattern);
        if attempts > LONG { self.build_and_find(pattern) } else { (at, attempts) }
    }

    /// Removes the message at this place.
    pub(super) fn take_at(&mut self, at: u32) -> Option<(Envelope, U)> {
        let entry = self.slab.at(at);
        let key = entry.key;
        let message = match std::mem::replace(&mut entry.payload, Held::Taken) {
            Held::Queued(message) => {
                if self.indexed != 0 {
                    self.unindex(at);
                }
                self.len -= 1;
                self.slab.remove(&mut self.order[side(key)], at);
                message
            }
            held => {
                let message = held.into_message()?;
                self.slab.remove(&mut self.probed, at);
                message
            }
        };
        Some((Envelope::from_key(key), message))
    }

    /// Sets the message at this place of the queue aside: afterwards only its handle leads to it.
    pub(super) fn set_aside(&mut self, at: u32) -> Option<(Envelope, Handle)> {
        if self.indexed != 0 {
            self.unindex(at);
        }
        self.len -= 1;
        let entry = self.slab.at(at);
        let key = entry.key;
        entry.payload = Held::Probed(std::mem::replace(&mut entry.payload, Held::Taken).into_message()?);
        self.slab.move_to(&mut self.order[side(key)], &mut self.probed, at);
        Some((Envelope::from_key(key), self.slab.handle(at)))
    }

    #[inline]
    pub(super) fn resolve(&self, handle: Handle) -> Option<u32> {
        self.slab.resolve(handle)
    }

    #[inline]
    pub(super) fn get(&self, at: u32) -> Option<(Envelope, &U)> {
        let entry = self.slab.get(at)?;
        match &entry.payload {
            Held::Taken => None,
            Held::Queued(message) | Held::Probed(message) => Some((Envelope::from_key(entry.key), message)),
        }
    }

    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut U> {
        match &mut self.slab.get_mut(at)?.payload {
            Held::Taken => None,
            Held::Queued(message) | Held::Probed(message) => Some(message),
        }
    }

    /// Returns all messages, in order of arrival within each list; those of matched probes last.
    pub(super) fn into_messages(mut self) -> Vec<(Envelope, U)> {
        let lists = [&self.order[0], &self.order[1], &self.probed];
        let places: Vec<u32> = lists.iter().flat_map(|list| self.slab.iter(list)).map(|(at, _)| at).collect();
        places.into_iter().filter_map(|at| self.take_at(at)).collect()
    }

    /// Walks the list. Gives up if it returns more attempts than [`LONG`].
    fn walk(&self, pattern: Pattern) -> (u32, u32) {
        let mut at = self.order[side(pattern.key())].head;
        let mut attempts = 0;
        while let Some(entry) = self.slab.get(at) {
            attempts += 1;
            if pattern.takes(Envelope::from_key(entry.key)) || attempts > LONG {
                break;
            }
            at = entry.next;
        }
        (at, attempts)
    }

    /// Searches a queue that has indexes; the index of this pattern's way may be missing.
    fn find_long(&mut self, pattern: Pattern) -> (u32, u32) {
        let way = class_of(pattern.mask());
        if way == class::ANY {
            return self.walk(pattern);
        }
        if !self.is_indexed(way) {
            let (at, attempts) = self.walk(pattern);
            return if attempts > LONG { self.build_and_find(pattern) } else { (at, attempts) };
        }
        let mut attempts = 0;
        let at = self.indexes[way].first(&self.slab, pattern.key(), &mut attempts);
        (at, attempts)
    }

    #[cold]
    #[inline(never)]
    fn build_and_find(&mut self, pattern: Pattern) -> (u32, u32) {
        let way = class_of(pattern.mask());
        for side in 0..2 {
            let mut at = self.order[side].head;
            while at != NONE {
                self.index(way, at);
                at = self.slab.at(at).next;
            }
        }
        self.indexed |= 1 << way;
        let mut attempts = LONG + 1;
        let at = self.indexes[way].first(&self.slab, pattern.key(), &mut attempts);
        (at, attempts)
    }

    const fn is_indexed(&self, way: usize) -> bool {
        self.indexed >> way & 1 != 0
    }

    /// Whether this way's index has messages with this key: a receive with `ANY_TAG` takes no negative tags.
    fn belongs(way: usize, key: u64) -> bool {
        way != class::ANY_TAG || side(key) == 0
    }

    #[inline(never)]
    fn index_anew(&mut self, at: u32) {
        for way in 0..WAYS {
            if self.is_indexed(way) {
                self.index(way, at);
            }
        }
    }

    fn index(&mut self, way: usize, at: u32) {
        if Self::belongs(way, self.slab.at(at).key) {
            self.indexes[way].push(&mut self.slab, at);
        }
    }

    /// Removes the message from the indexes. If few messages remain, empties all indexes.
    #[inline(never)]
    fn unindex(&mut self, at: u32) {
        let key = self.slab.at(at).key;
        for way in 0..WAYS {
            if self.is_indexed(way) && Self::belongs(way, key) {
                self.indexes[way].remove(&mut self.slab, at);
            }
        }
        if self.len <= SHORT + 1 {
            for (way, index) in self.indexes.iter_mut().enumerate() {
                let entries = self.order.iter().flat_map(|list| self.slab.iter(list));
                index.clear(entries.map(|(_, entry)| entry.key).filter(|key| Self::belongs(way, *key)));
            }
            self.indexed = 0;
        }
    }
}

const _: () = assert!(size_of::<Entry<Held<[u64; 4]>, WAYS>>() - size_of::<[u64; 4]>() <= 64);
