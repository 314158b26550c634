// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the cache: which registrations messages find, which go, and a random history against a model.

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
