// SPDX-License-Identifier: MIT OR Apache-2.0
//! The posted receives of a communicator. A list has all receives in posting order. When the list becomes long, each
//! receive is also in an index for receives of its mask, which yields the oldest that takes a message; the smallest
//! number among those of all indexes was posted first. Four masks have an index at a time, and MPI has no more. The
//! receives with further masks share one more index, whose mask compares nothing, so that all its entries have the same
//! key: a search follows them in posting order. Each side ([`MatchBits::side`]) has a list of its own, because no
//! message could go to a receive of either list. Used by [`super::Matching`]. Grade: hot. Threads: one at a time.
//! Tests: `tests/`.

use super::index::{Index, LONG, SHORT};
use super::pattern::{MatchBits, Pattern};
use super::slab::{Handle, List, NONE, Slab};

/// Number of masks that have an index. The index at this place is of the receives with further masks.
const OTHERS: usize = 4;

#[derive(Debug, Clone, Copy)]
struct Receive<R, E> {
    mask: E,
    /// Number of receives posted before it.
    number: u64,
    request: R,
}

#[derive(Debug)]
pub(super) struct Posted<R, E> {
    slab: Slab<E, Receive<R, E>, 1>,
    /// In posting order, by side.
    order: [List; 2],
    indexed: bool,
    indexes: [Index<E>; OTHERS + 1],
    len: u32,
    number: u64,
}

impl<R: Copy, E: MatchBits> Posted<R, E> {
    pub(super) const fn new() -> Self {
        Posted {
            slab: Slab::new(),
            order: [List::EMPTY; 2],
            indexed: false,
            indexes: [const { Index::new(E::NO_BITS, 0) }; OTHERS + 1],
            len: 0,
            number: 0,
        }
    }

    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub(super) fn insert(&mut self, pattern: Pattern<E>, request: R) -> Handle {
        let receive = Receive { mask: pattern.mask, number: self.number, request };
        self.number += 1;
        self.len += 1;
        let handle = self.slab.push(&mut self.order[pattern.key.side()], pattern.key, receive);
        if self.indexed {
            self.index(handle.at());
        }
        handle
    }

    /// Inserts a receive in the place of the one that was taken last: it is as old as that one was. Without the
    /// indexes, which a search makes again when it needs them.
    pub(super) fn put_back(&mut self, pattern: Pattern<E>, request: R) -> Handle {
        let number = self.slab.removed().map_or(self.number, |taken| taken.number);
        self.clear_indexes();
        self.len += 1;
        let list = &mut self.order[pattern.key.side()];
        let next = self.slab.iter(list).find(|(_, entry)| entry.payload.number > number).map(|(at, _)| at);
        let handle = self.slab.push(list, pattern.key, Receive { mask: pattern.mask, number, request });
        if let Some(next) = next {
            self.slab.move_before(list, handle.at(), next);
        }
        handle
    }

    /// Removes the receive that takes the message; returns it and the number of receives compared.
    #[inline]
    pub(super) fn take(&mut self, envelope: E) -> (Option<R>, u32) {
        let list = &mut self.order[envelope.side()];
        let at = list.head;
        let Some(entry) = self.slab.get(at) else { return (None, 0) };
        if self.indexed || entry.key != envelope.under(entry.payload.mask) {
            return self.take_further(envelope);
        }
        let receive = self.slab.remove_head(list, at).payload;
        self.len -= 1;
        (Some(receive.request), 1)
    }

    #[inline(never)]
    fn take_further(&mut self, envelope: E) -> (Option<R>, u32) {
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
    fn find(&mut self, envelope: E) -> (u32, u32) {
        let mut at = self.order[envelope.side()].head;
        let mut attempts = 0;
        while let Some(entry) = self.slab.get(at) {
            attempts += 1;
            if entry.key == envelope.under(entry.payload.mask) {
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
    fn build_and_find(&mut self, envelope: E) -> (u32, u32) {
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

    fn find_indexed(&self, envelope: E, mut attempts: u32) -> (u32, u32) {
        let mut first = (NONE, u64::MAX);
        for index in &self.indexes {
            let mut at = index.first(&self.slab, envelope, &mut attempts);
            while let Some(entry) = self.slab.get(at)
                && entry.payload.number < first.1
            {
                // All of a key take the message, but those of the further masks have different patterns.
                if entry.key == envelope.under(entry.payload.mask) {
                    first = (at, entry.payload.number);
                    break;
                }
                at = entry.links[0].next;
                attempts += u32::from(at != NONE);
            }
        }
        (first.0, attempts)
    }

    /// The place of the index that has the receives with this mask.
    fn index_of(&self, mask: E) -> usize {
        self.indexes[..OTHERS].iter().position(|index| index.mask() == mask).unwrap_or(OTHERS)
    }

    #[inline(never)]
    fn index(&mut self, at: u32) {
        let mask = self.slab.at(at).payload.mask;
        let mut index = self.index_of(mask);
        // An index without receives takes on another mask, unless one of the others might have this mask.
        if index == OTHERS
            && self.indexes[OTHERS].is_empty()
            && let Some(empty) = self.indexes[..OTHERS].iter().position(Index::is_empty)
        {
            self.indexes[empty].set_mask(mask);
            index = empty;
        }
        self.indexes[index].push(&mut self.slab, at);
    }

    fn remove(&mut self, at: u32) -> R {
        if self.indexed {
            self.unindex(at);
        }
        self.len -= 1;
        let side = self.slab.at(at).key.side();
        self.slab.remove(&mut self.order[side], at).payload.request
    }

    /// Removes the receive from its index. If few receives remain, empties all indexes.
    #[inline(never)]
    fn unindex(&mut self, at: u32) {
        let mask = self.slab.at(at).payload.mask;
        let index = self.index_of(mask);
        self.indexes[index].remove(&mut self.slab, at);
        if self.len <= SHORT + 1 {
            self.clear_indexes();
        }
    }

    fn clear_indexes(&mut self) {
        for index in &mut self.indexes {
            index.clear(self.order.iter().flat_map(|list| self.slab.iter(list)).map(|(_, entry)| entry.key));
        }
        self.indexed = false;
    }
}
