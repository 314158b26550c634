// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the pools, without a device.

use std::collections::HashSet;

use ibex_ffi::verbs::LocalSpan;

use super::pool::{SHORT, Slots};
use super::*;

const EAGER: usize = 1024;
const LARGE: usize = 4096;

/// Slots at invented addresses, which nobody accesses; records the calls.
#[derive(Default)]
struct Invented {
    bytes: u64,
    grown: Vec<(u32, u32)>,
    reclaimed: u32,
    exhausted: bool,
    /// Descriptors whose sends have completed, and those that `silent` has not taken.
    done: Vec<Owned<Descriptor>>,
    refused: Vec<*mut Descriptor>,
}

impl Slots for Invented {
    fn grow(&mut self, size: u32, count: u32) -> Option<Vec<LocalSpan>> {
        if self.exhausted {
            return None;
        }
        self.grown.push((size, count));
        let start = (1 << 20) + self.bytes;
        self.bytes += u64::from(size * count);
        // SAFETY: no adapter gets the spans, and no test accesses their bytes.
        let span = |index: u32| unsafe { LocalSpan::new(start + u64::from(index * size), size, 7) };
        Some((0..count).map(span).collect())
    }

    fn reclaim(&mut self, silent: &mut dyn FnMut(Owned<Descriptor>) -> bool) {
        self.reclaimed += 1;
        for done in self.done.drain(..) {
            let address = done.as_ptr();
            self.refused.extend((!silent(done)).then_some(address));
        }
    }
}

#[test]
fn every_pool_has_slots_before_the_first_message_and_within_its_limit() {
    for (limit, of_each) in [(0, [16, 16, 16]), (8, [4, 4, 4])] {
        let (mut slots, mut descriptors) = (Invented::default(), Descriptors::new(EAGER, LARGE, limit, 4));
        descriptors.reserve(|size, count| slots.grow(size, count).ok_or(())).unwrap();
        slots.exhausted = true;
        for (size, number) in [SHORT, EAGER, LARGE].into_iter().zip(of_each) {
            let taken = (0..100).take_while(|_| descriptors.take_slot(&mut slots, size, 0).is_some()).count();
            assert_eq!(taken, number, "slots of {size} bytes, limit {limit}");
        }
    }
}

#[test]
fn reserve_fails_if_it_cannot_register_the_first_slots() {
    let mut descriptors = Descriptors::new(EAGER, LARGE, 0, 4);
    assert_eq!(descriptors.reserve(|size, _| Err::<Vec<LocalSpan>, _>(size)), Err(SHORT as u32));
}

#[test]
fn a_descriptor_begins_with_open_mpis_part_and_fills_four_cache_lines_at_most() {
    assert_eq!(std::mem::offset_of!(Descriptor, base), 0);
    assert!(size_of::<Descriptor>() <= 256, "{}", size_of::<Descriptor>());
}

#[test]
fn a_descriptor_has_a_slot_of_its_own_that_holds_the_message() {
    let (mut slots, mut descriptors) = (Invented::default(), Descriptors::new(EAGER, LARGE, 0, 4));
    let mut places = HashSet::new();
    for size in [0, SHORT, SHORT + 1, EAGER, EAGER + 1, LARGE].repeat(3) {
        let descriptor = descriptors.take(&mut slots, size, 0).expect("no limit is set");
        let ([first, _], count) = descriptor.spans();
        assert_eq!((first.len() as usize, count), (size, 1));
        assert!(places.insert(descriptor.start().addr()));
    }
    let blocks = |size: usize| slots.grown.iter().filter(|block| **block == (size as u32, 4)).count();
    assert_eq!((blocks(SHORT), blocks(EAGER), blocks(LARGE)), (2, 2, 2), "six of each, by fours");
}

#[test]
fn a_message_larger_than_any_slot_gets_no_descriptor() {
    let (mut slots, mut descriptors) = (Invented::default(), Descriptors::new(EAGER, LARGE, 0, 4));
    assert!(descriptors.take(&mut slots, LARGE + 1, 0).is_none());
    assert!(slots.grown.is_empty());
}

#[test]
fn a_descriptor_given_back_is_the_next_of_its_pool() {
    let (mut slots, mut descriptors) = (Invented::default(), Descriptors::new(EAGER, LARGE, 0, 4));
    let eager = descriptors.take(&mut slots, 8, 0).expect("no limit is set");
    let large = descriptors.take(&mut slots, LARGE, 0).expect("no limit is set");
    let addresses = [eager.as_ptr(), large.as_ptr()];
    for descriptor in [eager, large] {
        // SAFETY: M2: it was taken from these pools.
        unsafe { descriptors.give_back(descriptor) };
    }
    let again = [8, LARGE].map(|size| descriptors.take(&mut slots, size, 0).expect("no limit is set").as_ptr());
    assert_eq!(again, addresses);
    assert_eq!(slots.grown.len(), 2);
}

#[test]
fn beyond_the_limit_short_and_eager_messages_wait_in_ordinary_memory_and_larger_ones_are_refused() {
    let (mut slots, mut descriptors) = (Invented::default(), Descriptors::new(EAGER, LARGE, 6, 2));
    for size in [SHORT, EAGER, LARGE] {
        for _ in 0..3 {
            assert!(descriptors.take_slot(&mut slots, size, 0).is_some(), "half of six are for {size} bytes");
        }
        assert!(descriptors.take_slot(&mut slots, size, 0).is_none());
    }
    let of_eager: Vec<_> = slots.grown.iter().filter(|(size, _)| *size == EAGER as u32).collect();
    assert_eq!(of_eager, [&(EAGER as u32, 2), &(EAGER as u32, 1)]);
    assert!(descriptors.take(&mut slots, LARGE, 0).is_none());
    for size in [1, SHORT, EAGER] {
        let mut descriptor = descriptors.take(&mut slots, size, 5).expect("ordinary memory has no limit");
        let message: Vec<u8> = (0..size).map(|index| index as u8).collect();
        // SAFETY: it has just been taken, with room for `size` bytes.
        unsafe { descriptor.start().copy_from_nonoverlapping(message.as_ptr(), size) };
        assert_eq!((descriptor.base.des_flags, descriptor.length()), (5, size as u64));
        // Open MPI has packed less than it had asked for.
        descriptor.set_length(size - 1);
        let (bytes, length) = descriptor.bytes().expect("it has no slot");
        assert_eq!(bytes[..length as usize], message[..size - 1]);
        let address = descriptor.as_ptr();
        // SAFETY: M2: it was taken from these pools.
        unsafe { descriptors.give_back(descriptor) };
        let again = descriptors.take(&mut slots, size, 0).expect("ordinary memory has no limit");
        assert_eq!(again.as_ptr(), address, "it is used again");
    }
}

#[test]
fn without_a_free_slot_sends_that_are_done_and_need_no_callback_give_theirs_back() {
    let (mut slots, mut descriptors) = (Invented::default(), Descriptors::new(EAGER, LARGE, 4, 2));
    slots.done = (0..2).map_while(|_| descriptors.take_slot(&mut slots, LARGE, 0)).collect();
    slots.done[1].callback_wanted = true;
    let [silent, other] = [0, 1].map(|index| slots.done[index].as_ptr());
    assert_eq!(descriptors.take_slot(&mut slots, LARGE, 0).map(|taken| taken.as_ptr()), Some(silent));
    assert_eq!((slots.refused.as_slice(), slots.reclaimed), (&[other][..], 1));
}

#[test]
fn not_every_message_without_a_slot_looks_at_every_peer() {
    let (mut slots, mut descriptors) = (Invented::default(), Descriptors::new(EAGER, LARGE, 2, 1));
    slots.exhausted = true;
    for _ in 0..1000 {
        assert!(descriptors.take_slot(&mut slots, EAGER, 0).is_none());
    }
    assert!((2..=20).contains(&slots.reclaimed), "{}", slots.reclaimed);
}

#[test]
fn short_slots_come_in_growing_numbers() {
    let (mut slots, mut descriptors) = (Invented::default(), Descriptors::new(EAGER, LARGE, 0, 4));
    for _ in 0..40 {
        descriptors.take(&mut slots, 8, 0).expect("no limit is set");
    }
    let counts: Vec<u32> = slots.grown.iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [4, 4, 4, 6, 9, 13]);
}

#[test]
fn without_memory_for_slots_completed_sends_are_reclaimed_and_messages_wait() {
    let (mut slots, mut descriptors) = (Invented::default(), Descriptors::new(EAGER, LARGE, 0, 4));
    slots.exhausted = true;
    let waiting = descriptors.take(&mut slots, 64, 0).expect("ordinary memory");
    assert!(!waiting.has_slot());
    assert_eq!(slots.reclaimed, 1);
    slots.exhausted = false;
    let descriptor = descriptors.take(&mut slots, 64, 0).expect("a slot");
    assert!(descriptor.has_slot());
}
