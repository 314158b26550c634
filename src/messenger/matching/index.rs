// SPDX-License-Identifier: MIT OR Apache-2.0
//! An index of a queue's entries by the masked bits of their keys: finds the oldest entry of a key at once, however
//! many entries the queue has. Each bucket of the hash table chains the oldest entry of each of its keys; the younger
//! entries of a key follow behind its oldest. So a thousand messages with one envelope do not slow down the search for
//! another. The entries have the links (`slab.rs`); this index uses `links[slot]`. The table doubles when there are
//! more keys than buckets, and never shrinks; nothing else allocates. Used by long queues (`posted.rs`,
//! `unexpected.rs`). Grade: hot. Threads: one at a time. Tests: below, and `tests/histories.rs`.

use super::pattern::MatchBits;
use super::slab::{Links, NONE, Slab};

/// Number of entries that a search compares before it builds the index that it needs. So a queue whose head is always
/// the match, as when messages and receives come in the same order, stays a list at any length.
pub(super) const LONG: u32 = 16;

/// A queue that shrinks to this drops its indexes. It builds one again only after it has grown beyond [`LONG`] entries.
pub(super) const SHORT: u32 = 4;

const _: () = assert!(SHORT < LONG / 2, "a queue between the two pays for its indexes");

/// Value of `chain` in an entry that is not the oldest of its key.
const YOUNGER: u32 = NONE - 1;

const FIRST_BUCKETS: usize = 64;

#[derive(Debug)]
pub(super) struct Index<E> {
    /// Bits of an entry's key that this index compares.
    mask: E,
    /// Position of this index' links in an entry's `links`.
    slot: usize,
    /// First entry of each chain. The length is a power of two, or 0 at first.
    buckets: Vec<u32>,
    /// Number of different keys among the entries.
    keys: usize,
}

/// Mixes a key so that any 32 bits of it, ranks and tags in sequence for example, spread over the high half.
#[inline]
const fn hash(key: u64) -> u64 {
    let mixed = (key ^ key >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29 ^ key >> 32).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32
}

impl<E: MatchBits> Index<E> {
    pub(super) const fn new(mask: E, slot: usize) -> Self {
        Index { mask, slot, buckets: Vec::new(), keys: 0 }
    }

    /// The mask of the keys, whether or not there are entries.
    #[inline]
    pub(super) fn mask(&self) -> E {
        self.mask
    }

    /// Sets the mask of an index without entries.
    #[inline]
    pub(super) fn set_mask(&mut self, mask: E) {
        debug_assert!(self.is_empty(), "its entries have other keys");
        self.mask = mask;
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.keys == 0
    }

    #[inline]
    fn bucket(&self, key: E) -> usize {
        hash(key.fold()) as usize & (self.buckets.len().wrapping_sub(1))
    }

    /// Returns the oldest entry with this key under the mask, or [`NONE`]; adds the entries compared to `attempts`.
    #[inline]
    pub(super) fn first<P, const N: usize>(&self, slab: &Slab<E, P, N>, key: E, attempts: &mut u32) -> u32 {
        let key = key.under(self.mask);
        if self.is_empty() {
            return NONE;
        }
        let mut at = self.buckets[self.bucket(key)];
        while let Some(entry) = slab.get(at) {
            *attempts += 1;
            if entry.key.under(self.mask) == key {
                break;
            }
            at = entry.links[self.slot].chain;
        }
        at
    }

    /// Adds the entry as the youngest of its key.
    pub(super) fn push<P, const N: usize>(&mut self, slab: &mut Slab<E, P, N>, at: u32) {
        let slot = self.slot;
        let key = slab.at(at).key.under(self.mask);
        let oldest = self.first(slab, key, &mut 0);
        if let Some(entry) = slab.get_mut(oldest) {
            let prev = std::mem::replace(&mut entry.links[slot].prev, at);
            slab.at(prev).links[slot].next = at;
            slab.at(at).links[slot] = Links { next: NONE, prev, chain: YOUNGER };
            return;
        }
        if self.keys == self.buckets.len() {
            self.grow(slab);
        }
        self.keys += 1;
        let bucket = self.bucket(key);
        let chain = std::mem::replace(&mut self.buckets[bucket], at);
        slab.at(at).links[slot] = Links { next: NONE, prev: at, chain };
    }

    pub(super) fn remove<P, const N: usize>(&mut self, slab: &mut Slab<E, P, N>, at: u32) {
        let slot = self.slot;
        let key = slab.at(at).key.under(self.mask);
        let Links { next, prev, chain } = slab.at(at).links[slot];
        if chain == YOUNGER {
            slab.at(prev).links[slot].next = next;
            // The oldest entry's `prev` is the youngest: it changes if this was the youngest.
            let follower = if next == NONE { self.first(slab, key, &mut 0) } else { next };
            slab.at(follower).links[slot].prev = prev;
            return;
        }
        let successor = if let Some(entry) = slab.get_mut(next) {
            // `prev` is the youngest, which may be this entry itself.
            entry.links[slot].prev = prev;
            entry.links[slot].chain = chain;
            next
        } else {
            self.keys -= 1;
            chain
        };
        let bucket = self.bucket(key);
        let mut before = self.buckets[bucket];
        if before == at {
            self.buckets[bucket] = successor;
            return;
        }
        while slab.at(before).links[slot].chain != at {
            before = slab.at(before).links[slot].chain;
        }
        slab.at(before).links[slot].chain = successor;
    }

    /// Removes all entries. `keys` are the keys of all of them: the cost is proportional to these, not to the table.
    pub(super) fn clear(&mut self, keys: impl Iterator<Item = E>) {
        if self.is_empty() {
            return;
        }
        for key in keys {
            let bucket = self.bucket(key.under(self.mask));
            self.buckets[bucket] = NONE;
        }
        self.keys = 0;
    }

    #[cold]
    fn grow<P, const N: usize>(&mut self, slab: &mut Slab<E, P, N>) {
        let room = (self.buckets.len() * 2).max(FIRST_BUCKETS);
        let old = std::mem::replace(&mut self.buckets, vec![NONE; room]);
        for mut at in old {
            while at != NONE {
                let bucket = self.bucket(slab.at(at).key.under(self.mask));
                let first = std::mem::replace(&mut self.buckets[bucket], at);
                at = std::mem::replace(&mut slab.at(at).links[self.slot].chain, first);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::slab::List;
    use super::*;
    use crate::messenger::matching::Tagged;

    struct Keys<E> {
        slab: Slab<E, (), 1>,
        list: List,
        index: Index<E>,
    }

    impl MatchBits for u64 {
        const NO_BITS: Self = 0;

        fn under(self, mask: Self) -> Self {
            self & mask
        }

        fn fold(self) -> u64 {
            self
        }

        fn side(self) -> usize {
            0
        }
    }

    impl<E: MatchBits> Keys<E> {
        fn new(all_bits: E, keys: impl IntoIterator<Item = E>) -> Self {
            let mut all = Keys { slab: Slab::new(), list: List::EMPTY, index: Index::new(all_bits, 0) };
            for (place, key) in keys.into_iter().enumerate() {
                all.slab.push(&mut all.list, key, ());
                all.index.push(&mut all.slab, place as u32);
            }
            all
        }

        fn first(&self, key: E) -> (u32, u32) {
            let mut attempts = 0;
            (self.index.first(&self.slab, key, &mut attempts), attempts)
        }

        fn remove(&mut self, at: u32) {
            self.index.remove(&mut self.slab, at);
            self.slab.remove(&mut self.list, at);
        }
    }

    #[test]
    fn first_returns_the_oldest_entry_of_a_key_whichever_entries_have_left() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut keys = Keys::new(!0, [5, 5, 5]);
            let mut left = vec![0, 1, 2];
            for at in order {
                keys.remove(at);
                left.retain(|other| *other != at);
                assert_eq!(keys.first(5).0, left.first().copied().unwrap_or(NONE), "{order:?}");
            }
            assert_eq!(keys.index.keys, 0);
        }
    }

    #[test]
    fn a_growing_table_keeps_its_entries() {
        let (count, room) = if cfg!(miri) { (100_u32, 128) } else { (1000, 1024) };
        let numbers = || 0..u64::from(count);
        let mut keys = Keys::new(!0, numbers().chain(numbers()));
        assert_eq!((keys.index.keys, keys.index.buckets.len()), (count as usize, room));
        assert!(numbers().all(|key| keys.first(key).0 == key as u32));
        (0..count).for_each(|at| keys.remove(at));
        assert!(numbers().all(|key| keys.first(key).0 == count + key as u32));
        let left: Vec<u64> = keys.slab.iter(&keys.list).map(|(_, entry)| entry.key).collect();
        keys.index.clear(left.into_iter());
        assert!(numbers().all(|key| keys.first(key).0 == NONE));
        assert!(keys.index.buckets.iter().all(|bucket| *bucket == NONE));
    }

    fn assert_spread<E: MatchBits>(name: &str, all_bits: E, set: &[E]) {
        let keys = Keys::new(all_bits, set.iter().copied());
        let attempts: Vec<u32> = set.iter().map(|key| keys.first(*key).1).collect();
        let mean = f64::from(attempts.iter().sum::<u32>()) / set.len() as f64;
        assert!(mean < 1.7, "{name}: {mean} attempts in the mean");
        assert!(attempts.iter().all(|attempts| *attempts <= 12), "{name}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "as few keys as Miri can insert do not show the spread")]
    fn ranks_tags_and_grids_of_both_spread_over_the_table() {
        let count = 30_000_u64;
        let side = count.isqrt();
        let sets: [(&str, Vec<u64>); 6] = [
            ("tags", (0..count).collect()),
            ("negative tags", (0..count).map(|tag| 0xffff_ffff - tag).collect()),
            ("ranks", (0..count).map(|rank| rank << 32).collect()),
            ("every 4096th tag", (0..count).map(|tag| tag << 12 & 0xffff_ffff | tag >> 20).collect()),
            ("tags of a rank each", (0..count).map(|rank| rank << 32 | rank).collect()),
            ("a grid", (0..side * side).map(|number| ((number / side) << 32) | (number % side)).collect()),
        ];
        for (name, set) in sets {
            assert_spread(name, !0, &set);
            // The same in libfabric's envelopes: the rank as a source, or in a tag's high bits.
            let all_bits = Tagged { source: !0, tag: !0, data: None };
            let set_of = |of: fn(u64) -> Tagged| set.iter().map(|key| of(*key)).collect::<Vec<_>>();
            assert_spread(
                name,
                all_bits,
                &set_of(|key| Tagged { source: key >> 32, tag: key & 0xffff_ffff, data: None }),
            );
            assert_spread(name, all_bits, &set_of(|key| Tagged { source: key >> 32, tag: key << 32, data: None }));
            assert_spread(name, all_bits, &set_of(|key| Tagged { source: 3, tag: key, data: None }));
        }
    }
}
