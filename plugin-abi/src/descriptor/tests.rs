// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the pools, without a device.

use std::collections::HashSet;

use ibex_ffi::verbs::LocalSpan;

use super::pool::{SHORT, Slots};
use super::*;

const EAGER: usize = 1024;
const LARGE: usize = 4096;

/// Slots at addresses that nobody touches; notes what it is asked for.
struct Invented {
    next: u64,
    grown: Vec<(u32, u32)>,
    reclaimed: u32,
    exhausted: bool,
}

impl Invented {
    fn new() -> Self {
        Invented { next: 1 << 20, grown: Vec::new(), reclaimed: 0, exhausted: false }
    }
}

impl Slots for Invented {
    fn grow(&mut self, size: u32, count: u32) -> Option<Vec<LocalSpan>> {
        if self.exhausted {
            return None;
        }
        self.grown.push((size, count));
        let start = self.next;
        self.next += u64::from(size * count);
        // SAFETY: no adapter gets them, and no test touches their bytes.
        let span = |index: u32| unsafe { LocalSpan::new(start + u64::from(index * size), size, 7) };
        Some((0..count).map(span).collect())
    }

    fn reclaim(&mut self) {
        self.reclaimed += 1;
    }
}

#[test]
fn every_pool_has_slots_before_the_first_message_and_within_its_limit() {
    for (limit, of_each) in [(0, [16, 16, 16]), (8, [16, 4, 4])] {
        let (mut slots, mut descriptors) = (Invented::new(), Descriptors::new(EAGER, LARGE, limit, 4));
        descriptors.reserve(|size, count| slots.grow(size, count).ok_or(())).unwrap();
        slots.exhausted = true;
        for (size, number) in [SHORT, EAGER, LARGE].into_iter().zip(of_each) {
            let taken = (0..100).take_while(|_| descriptors.take(&mut slots, size, 0).is_some()).count();
            assert_eq!(taken, number, "slots of {size} bytes, limit {limit}");
        }
    }
}

#[test]
fn slots_that_cannot_be_had_from_the_start_are_an_error() {
    let mut descriptors = Descriptors::new(EAGER, LARGE, 0, 4);
    assert_eq!(descriptors.reserve(|size, _| Err::<Vec<LocalSpan>, _>(size)), Err(SHORT as u32));
}

#[test]
fn open_mpis_part_of_a_descriptor_stands_first() {
    assert_eq!(std::mem::offset_of!(Descriptor, base), 0);
}

#[test]
fn a_descriptor_fills_four_cache_lines_at_most() {
    assert!(size_of::<Descriptor>() <= 256, "{}", size_of::<Descriptor>());
}

#[test]
fn a_descriptor_has_a_slot_of_its_own_that_holds_the_message() {
    let (mut slots, mut descriptors) = (Invented::new(), Descriptors::new(EAGER, LARGE, 0, 4));
    let mut places = HashSet::new();
    for size in [0, SHORT, SHORT + 1, EAGER, EAGER + 1, LARGE].repeat(3) {
        let descriptor = descriptors.take(&mut slots, size, 0).expect("no limit is set");
        // SAFETY: just taken.
        let ([first, _], count) = unsafe { spans(descriptor.as_ptr()) };
        assert_eq!((first.len() as usize, count), (size, 1));
        // SAFETY: as above.
        assert!(places.insert(unsafe { slot(descriptor) }.addr()));
    }
    let blocks = |size: usize| slots.grown.iter().filter(|block| **block == (size as u32, 4)).count();
    assert_eq!((blocks(SHORT), blocks(EAGER), blocks(LARGE)), (2, 2, 2), "six of each, by fours");
}

#[test]
fn a_message_larger_than_any_slot_gets_no_descriptor() {
    let (mut slots, mut descriptors) = (Invented::new(), Descriptors::new(EAGER, LARGE, 0, 4));
    assert!(descriptors.take(&mut slots, LARGE + 1, 0).is_none());
    assert!(slots.grown.is_empty());
}

#[test]
fn a_descriptor_given_back_is_the_next_of_its_pool() {
    let (mut slots, mut descriptors) = (Invented::new(), Descriptors::new(EAGER, LARGE, 0, 4));
    let eager = descriptors.take(&mut slots, 8, 0).expect("no limit is set");
    let large = descriptors.take(&mut slots, LARGE, 0).expect("no limit is set");
    for descriptor in [eager, large] {
        // SAFETY: never sent.
        unsafe { descriptors.give_back(descriptor.as_ptr()) };
    }
    assert_eq!(descriptors.take(&mut slots, 8, 0), Some(eager));
    assert_eq!(descriptors.take(&mut slots, LARGE, 0), Some(large));
    assert_eq!(slots.grown.len(), 2);
}

#[test]
fn beyond_the_limit_only_short_messages_get_a_descriptor_and_what_is_under_way_is_asked_to_end() {
    let (mut slots, mut descriptors) = (Invented::new(), Descriptors::new(EAGER, LARGE, 6, 2));
    for _ in 0..3 {
        descriptors.take(&mut slots, EAGER, 0).expect("half of six are for eager messages");
    }
    assert!(descriptors.take(&mut slots, EAGER, 0).is_none());
    assert_eq!((slots.grown.clone(), slots.reclaimed), (vec![(EAGER as u32, 2), (EAGER as u32, 1)], 1));
    assert!(descriptors.take(&mut slots, LARGE, 0).is_some());
    for _ in 0..4 {
        assert!(descriptors.take(&mut slots, SHORT, 0).is_some());
    }
    assert_eq!(slots.reclaimed, 1);
    assert!(descriptors.take(&mut slots, SHORT, 0).is_some());
    assert_eq!(slots.reclaimed, 2);
}

#[test]
fn short_slots_come_in_growing_numbers() {
    let (mut slots, mut descriptors) = (Invented::new(), Descriptors::new(EAGER, LARGE, 0, 4));
    for _ in 0..40 {
        descriptors.take(&mut slots, 8, 0).expect("no limit is set");
    }
    let counts: Vec<u32> = slots.grown.iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [4, 4, 4, 6, 9, 13]);
}

#[test]
fn without_memory_for_slots_what_is_under_way_is_reclaimed() {
    let (mut slots, mut descriptors) = (Invented::new(), Descriptors::new(EAGER, LARGE, 0, 4));
    slots.exhausted = true;
    assert!(descriptors.take(&mut slots, 64, 0).is_none());
    assert_eq!(slots.reclaimed, 1);
    slots.exhausted = false;
    assert!(descriptors.take(&mut slots, 64, 0).is_some());
}
