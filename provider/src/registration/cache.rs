// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registrations of an endpoint by their addresses: those in use, and those that are kept for later messages.
//!
//! Kept ranges may overlap, but none contains another. So they end in the order in which they begin, and if any covers
//! some memory, then the last that begins at or before it does. Called by `mod.rs`. Grade: pending (a search of a
//! tree). Threads: the one that has entered the endpoint. Tests: below.

use std::collections::BTreeMap;
use std::ops::Range;

/// What is kept at most of what no message uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) count: usize,
    pub(super) bytes: usize,
}

/// The registrations. `R` is one with the adapter, which ends when it is dropped.
pub(super) struct Cache<R> {
    bound: Bound,
    all: Vec<Option<Entry<R>>>,
    free: Vec<u32>,
    /// Those that messages find, by their first byte.
    found: BTreeMap<usize, u32>,
    /// Those of them that no message uses, by their last use.
    idle: BTreeMap<u64, u32>,
    idle_bytes: usize,
    /// Number of uses that have ended.
    uses: u64,
}

struct Entry<R> {
    region: R,
    range: Range<usize>,
    is_writable: bool,
    /// Number of messages that use it.
    users: u32,
    /// The number of its last use.
    last_use: u64,
    /// Whether messages find it: it ends with its last use otherwise.
    is_kept: bool,
}

impl<R> Cache<R> {
    pub(super) fn new(bound: Bound) -> Self {
        let (found, idle) = (BTreeMap::new(), BTreeMap::new());
        Cache { bound, all: Vec::new(), free: Vec::new(), found, idle, idle_bytes: 0, uses: 0 }
    }

    fn entry(&mut self, place: u32) -> &mut Entry<R> {
        self.all[place as usize].as_mut().expect("it is in use, or kept")
    }

    fn range(&self, place: u32) -> &Range<usize> {
        &self.all[place as usize].as_ref().expect("it is in use, or kept").range
    }

    /// Finds a registration that covers this memory, for one more message.
    pub(super) fn take(&mut self, range: &Range<usize>, is_writable: bool) -> Option<(u32, &R)> {
        let (_, &place) = self.found.range(..=range.start).next_back()?;
        let known = self.entry(place);
        if known.range.end < range.end || is_writable && !known.is_writable {
            return None;
        }
        known.users += 1;
        if known.users == 1 {
            let (last_use, bytes) = (known.last_use, known.range.len());
            self.idle.remove(&last_use);
            self.idle_bytes -= bytes;
        }
        Some((place, &self.entry(place).region))
    }

    /// Adds a registration, which a message uses.
    pub(super) fn add(&mut self, range: Range<usize>, is_writable: bool, region: R) -> u32 {
        let inner = self.found.range(range.start..).map(|(_, place)| *place);
        let inner = inner.take_while(|place| self.range(*place).end <= range.end);
        // A message has found no use for these: it writes, and cannot by the last of them.
        let outer = self.found.range(..=range.start).rev().map(|(_, place)| *place);
        let outer = outer.take_while(|place| self.range(*place).end >= range.end);
        let replaced: Vec<u32> = inner.chain(outer).collect();
        for place in replaced {
            self.forget(place);
        }
        let start = range.start;
        let entry = Some(Entry { region, range, is_writable, users: 1, last_use: 0, is_kept: true });
        let place = self.free.pop().unwrap_or(self.all.len() as u32);
        if place as usize == self.all.len() {
            self.all.push(entry);
        } else {
            self.all[place as usize] = entry;
        }
        self.found.insert(start, place);
        place
    }

    /// Takes back a registration that a message has used. Returns the number of others that had to go.
    pub(super) fn give_back(&mut self, place: u32) -> usize {
        self.uses += 1;
        let last_use = self.uses;
        let known = self.entry(place);
        known.users -= 1;
        if known.users > 0 {
            return 0;
        }
        if !known.is_kept {
            self.end(place);
            return 0;
        }
        known.last_use = last_use;
        let bytes = known.range.len();
        self.idle.insert(last_use, place);
        self.idle_bytes += bytes;
        let mut evicted = 0;
        while self.idle.len() > self.bound.count || self.idle_bytes > self.bound.bytes {
            evicted += usize::from(self.evict());
        }
        evicted
    }

    /// Ends the registration that was unused for longest. Returns false if all are in use.
    pub(super) fn evict(&mut self) -> bool {
        let oldest = self.idle.first_key_value().map(|(_, place)| *place);
        oldest.is_some_and(|place| {
            self.forget(place);
            true
        })
    }

    /// Keeps no registration of this memory: later messages register it anew. Returns the number of those that go.
    pub(super) fn forget_range(&mut self, range: &Range<usize>) -> usize {
        let before = self.found.range(..range.end).rev().map(|(_, place)| *place);
        let stale: Vec<u32> = before.take_while(|place| self.range(*place).end > range.start).collect();
        for &place in &stale {
            self.forget(place);
        }
        stale.len()
    }

    /// Keeps none. Returns the number of those that go.
    pub(super) fn forget_all(&mut self) -> usize {
        self.forget_range(&(0..usize::MAX))
    }

    fn forget(&mut self, place: u32) {
        let known = self.entry(place);
        known.is_kept = false;
        let (start, is_idle, last_use, bytes) =
            (known.range.start, known.users == 0, known.last_use, known.range.len());
        self.found.remove(&start);
        if is_idle {
            self.idle.remove(&last_use);
            self.idle_bytes -= bytes;
            self.end(place);
        }
    }

    fn end(&mut self, place: u32) {
        self.all[place as usize] = None;
        self.free.push(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    /// A registration that counts those that are left.
    struct Region(Rc<Cell<u32>>, u32);

    impl Drop for Region {
        fn drop(&mut self) {
            self.0.set(self.0.get() - 1);
        }
    }

    struct Model {
        cache: Cache<Region>,
        left: Rc<Cell<u32>>,
        made: u32,
    }

    impl Model {
        fn new(count: usize, bytes: usize) -> Self {
            Model { cache: Cache::new(Bound { count, bytes }), left: Rc::default(), made: 0 }
        }

        /// A message begins. Returns the registration that it uses, and whether that was there.
        fn begin(&mut self, range: Range<usize>, is_writable: bool) -> (u32, u32, bool) {
            if let Some((place, region)) = self.cache.take(&range, is_writable) {
                return (place, region.1, true);
            }
            self.made += 1;
            self.left.set(self.left.get() + 1);
            let region = Region(Rc::clone(&self.left), self.made);
            (self.cache.add(range, is_writable, region), self.made, false)
        }

        /// A whole message. Returns whether it has found a registration.
        fn message(&mut self, range: Range<usize>) -> bool {
            let (place, _, was_there) = self.begin(range, true);
            self.cache.give_back(place);
            was_there
        }
    }

    #[test]
    fn later_messages_find_a_registration_that_covers_their_memory() {
        let mut of = Model::new(10, 1000);
        assert!(!of.message(100..200));
        assert!(of.message(100..200) && of.message(150..200) && of.message(100..101));
        assert!(!of.message(150..250), "it overlaps");
        assert!(of.message(100..150) && of.message(160..250), "both are kept");
        assert!(!of.message(90..260));
        assert_eq!(of.left.get(), 1, "it contains both of them");
        assert!(of.message(100..250));
    }

    #[test]
    fn those_that_were_unused_for_longest_go_beyond_each_bound_and_on_demand() {
        for mut of in [Model::new(2, 1000), Model::new(10, 250)] {
            let (used, ..) = of.begin(500..600, true);
            assert!(!of.message(0..100) && !of.message(100..200));
            assert!(of.message(0..100));
            assert!(!of.message(200..300));
            assert!(of.message(0..100) && of.message(200..300), "they were used last");
            assert!(!of.message(100..200));
            assert_eq!(of.left.get(), 3, "one is in use, which no bound ends");
            assert!(of.cache.evict() && of.cache.evict() && !of.cache.evict());
            of.cache.give_back(used);
            assert!(of.message(500..600));
        }
    }

    #[test]
    fn without_a_bound_nothing_is_kept() {
        let mut of = Model::new(0, 0);
        assert!(!of.message(0..100) && !of.message(0..100));
        assert_eq!(of.left.get(), 0);
    }

    #[test]
    fn changed_memory_is_registered_anew_while_messages_use_the_old_registration() {
        let mut of = Model::new(10, 1000);
        let (old, first, _) = of.begin(100..200, true);
        assert!(!of.message(190..300) && !of.message(300..400));
        assert_eq!(of.cache.forget_range(&(195..300)), 2);
        let (new, second, was_there) = of.begin(100..200, true);
        assert!(first != second && !was_there);
        of.cache.give_back(old);
        assert!(of.message(100..200) && of.message(300..400), "the new one, and one that has not changed");
        of.cache.give_back(new);
        assert_eq!(of.cache.forget_range(&(400..500)), 0);
        assert_eq!((of.cache.forget_all(), of.left.get()), (2, 0));
    }

    #[test]
    fn memory_that_was_only_read_is_registered_anew_to_be_written() {
        let mut of = Model::new(10, 1000);
        let (read, ..) = of.begin(100..300, false);
        of.cache.give_back(read);
        assert!(!of.message(150..200), "it writes");
        assert!(of.message(150..200));
        assert_eq!(of.left.get(), 1, "none contains another");
    }

    #[test]
    fn random_messages_and_changes_use_the_right_registrations() {
        const MEMORY: usize = 60;
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut draw = |below: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random as usize % below
        };
        for _ in 0..50 {
            let mut of = Model::new(draw(6), 40 + draw(100));
            // The number of registrations that were made when a page changed last; what a message uses is later.
            let mut changed = [0; MEMORY];
            // By registration: its range, and whether it can be written.
            let mut made: Vec<(Range<usize>, bool)> = vec![(0..0, false)];
            let mut in_use = Vec::new();
            for _ in 0..400 {
                let start = draw(MEMORY);
                let range = start..(start + 1 + draw(20)).min(MEMORY);
                match draw(4) {
                    0 => {
                        changed[range.clone()].fill(of.made);
                        of.cache.forget_range(&range);
                    }
                    1 if !in_use.is_empty() => _ = of.cache.give_back(in_use.swap_remove(draw(in_use.len()))),
                    _ => {
                        let is_writable = draw(2) == 0;
                        let (place, number, was_there) = of.begin(range.clone(), is_writable);
                        if !was_there {
                            made.push((range.clone(), is_writable));
                        }
                        let (covers, can_write) = made[number as usize].clone();
                        assert!(covers.start <= range.start && range.end <= covers.end && can_write >= is_writable);
                        assert!(range.clone().all(|page| changed[page] < number), "its pages are those of now");
                        in_use.push(place);
                    }
                }
                let found: Vec<_> = of.cache.found.values().map(|place| of.cache.range(*place).clone()).collect();
                assert!(found.is_sorted_by(|a, b| a.start < b.start && a.end < b.end), "{found:?}");
                let idle = of.cache.idle.values().map(|place| of.cache.range(*place).len()).sum::<usize>();
                assert!(idle == of.cache.idle_bytes && idle <= of.cache.bound.bytes);
            }
            for place in in_use {
                of.cache.give_back(place);
            }
            of.cache.forget_all();
            assert_eq!(of.left.get(), 0);
        }
    }
}
