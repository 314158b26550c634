// SPDX-License-Identifier: MIT OR Apache-2.0
//! The posted receives of a communicator. A list has all receives in posting order. When the list becomes long, each
//! receive is also in one of four indexes: for receives that specify source and tag, tag, source, or nothing. Each
//! index yields the oldest receive that takes a message; the smallest number among these four was posted first.
//! Receives for negative tags have a list of their own, because no message could go to a receive of either list. Used
//! by [`super::Matching`]. Path: hot. Threads: one at a time. Tests: `tests/`.

use super::index::{Index, LONG, SHORT};
use super::pattern::{Envelope, Pattern, SPECIFIED, class, class_of, side};
use super::slab::{Handle, List, NONE, Slab};

#[derive(Debug, Clone, Copy)]
struct Receive<R> {
    mask: u64,
    /// Number of receives posted before it.
    number: u64,
    request: R,
}

#[derive(Debug)]
pub(super) struct Posted<R> {
    slab: Slab<Receive<R>, 1>,
    /// In posting order: for tags of at least 0, for negative tags.
    order: [List; 2],
    indexed: bool,
    indexes: [Index; 4],
    len: u32,
    number: u64,
}

impl<R: Copy> Posted<R> {
    pub(super) const fn new() -> Self {
        Posted {
            slab: Slab::new(),
            order: [List::EMPTY; 2],
            indexed: false,
            indexes: [
                Index::new(SPECIFIED[class::EXACT], 0),
                Index::new(SPECIFIED[class::ANY_SOURCE], 0),
                Index::new(SPECIFIED[class::ANY_TAG], 0),
                Index::new(SPECIFIED[class::ANY], 0),
            ],
            len: 0,
            number: 0,
        }
    }

    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub(super) fn insert(&mut self, pattern: Pattern, request: R) -> Handle {
        let receive = Receive { mask: pattern.mask(), number: self.number, request };
        self.number += 1;
        self.len += 1;
        let handle = self.slab.push(&mut self.order[side(pattern.key())], pattern.key(), receive);
        if self.indexed {
            self.index(handle.at());
        }
        handle
    }

    /// Removes the receive that takes the message; returns it and the number of receives compared.
    #[inline]
    pub(super) fn take(&mut self, envelope: Envelope) -> (Option<R>, u32) {
        let list = &mut self.order[side(envelope.key())];
        let at = list.head;
        let Some(entry) = self.slab.get(at) else { return (None, 0) };
        if self.indexed || (entry.key ^ envelope.key()) & entry.payload.mask != 0 {
            return self.take_further(envelope);
        }
        let receive = self.slab.remove_head(list, at).payload;
        self.len -= 1;
        (Some(receive.request), 1)
    }

    #[inline(never)]
    fn take_further(&mut self, envelope: Envelope) -> (Option<R>, u32) {
        let (at, attempts) = if self.indexed { self.find_indexed(envelope, 0) } else { self.find(envelope) };
        if at == NONE { (None, attempts) } else { (Some(self.remove(at)), attempts) }
    }

    /// Removes the receive with this handle if it has this request.
    pub(super) fn cancel(&mut self, handle: Handle, request: R) -> bool
    where
        R: PartialEq,
    {
        let at = self.slab.resolve(handle).filter(|at| self.slab.at(*at).payload.request == request);
        at.map(|at| self.remove(at)).is_some()
    }

    /// Returns the receives, in posting order within each side.
    pub(super) fn requests(&self) -> impl Iterator<Item = R> {
        self.order.iter().flat_map(|list| self.slab.iter(list)).map(|(_, entry)| entry.payload.request)
    }

    /// Walks the list, and builds the indexes after [`LONG`] entries.
    fn find(&mut self, envelope: Envelope) -> (u32, u32) {
        let key = envelope.key();
        let mut at = self.order[side(key)].head;
        let mut attempts = 0;
        while let Some(entry) = self.slab.get(at) {
            attempts += 1;
            if (entry.key ^ key) & entry.payload.mask == 0 {
                break;
            }
            if attempts == LONG {
                return self.build_and_find(envelope);
            }
            at = entry.next;
        }
        (at, attempts)
    }

    #[cold]
    #[inline(never)]
    fn build_and_find(&mut self, envelope: Envelope) -> (u32, u32) {
        for side in 0..2 {
            let mut at = self.order[side].head;
            while at != NONE {
                self.index(at);
                at = self.slab.at(at).next;
            }
        }
        self.indexed = true;
        self.find_indexed(envelope, LONG)
    }

    fn find_indexed(&self, envelope: Envelope, mut attempts: u32) -> (u32, u32) {
        let key = envelope.key();
        // A negative tag needs only the classes that name a tag.
        let classes = if envelope.tag() < 0 { class::ANY_TAG } else { self.indexes.len() };
        let mut first = (NONE, u64::MAX);
        for index in &self.indexes[..classes] {
            let at = index.first(&self.slab, key, &mut attempts);
            if let Some(entry) = self.slab.get(at)
                && entry.payload.number < first.1
            {
                first = (at, entry.payload.number);
            }
        }
        (first.0, attempts)
    }

    #[inline(never)]
    fn index(&mut self, at: u32) {
        let class = class_of(self.slab.at(at).payload.mask);
        self.indexes[class].push(&mut self.slab, at);
    }

    fn remove(&mut self, at: u32) -> R {
        if self.indexed {
            self.unindex(at);
        }
        self.len -= 1;
        let side = side(self.slab.at(at).key);
        self.slab.remove(&mut self.order[side], at).payload.request
    }

    /// Removes the receive from its index. If few receives remain, empties all indexes.
    #[inline(never)]
    fn unindex(&mut self, at: u32) {
        let class = class_of(self.slab.at(at).payload.mask);
        self.indexes[class].remove(&mut self.slab, at);
        if self.len <= SHORT + 1 {
            for index in &mut self.indexes {
                index.clear(self.order.iter().flat_map(|list| self.slab.iter(list)).map(|(_, entry)| entry.key));
            }
            self.indexed = false;
        }
    }
}
