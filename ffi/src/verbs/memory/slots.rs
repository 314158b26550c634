// SPDX-License-Identifier: MIT OR Apache-2.0
//! Slots of one size in memory that an adapter may write while ibex reads it. Used by `arena.rs`. Naming a slot is hot,
//! a copy setup or pending grade. One thread at a time copies to it. Sizes in bytes. Tests: below, also under Miri.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Slots start at multiples of this: a cache line.
pub(super) const ALIGNMENT: usize = 64;

const WORD: usize = size_of::<u64>();

#[derive(Debug)]
pub(super) struct Slots {
    base: NonNull<u8>,
    slot: usize,
    stride: usize,
    count: usize,
}

impl Slots {
    /// Size of `count` slots of `slot` bytes; `None` if it is 0 or exceeds `usize`.
    pub(super) fn bytes(slot: usize, count: usize) -> Option<usize> {
        stride(slot)?.checked_mul(count).filter(|&bytes| bytes > 0)
    }

    /// Lays the slots out in the memory at `base`; `None` as [`Self::bytes`].
    ///
    /// # Safety
    /// As long as the value lives, [`Self::bytes`] initialised bytes are at `base`, a multiple of [`ALIGNMENT`]. No
    /// reference to them exists, an adapter may write them, all others only atomically.
    pub(super) unsafe fn new(base: NonNull<u8>, slot: usize, count: usize) -> Option<Slots> {
        Self::bytes(slot, count)?;
        Some(Slots { base, slot, stride: stride(slot)?, count })
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    #[inline]
    pub(super) fn size(&self) -> usize {
        self.slot
    }

    /// The address of slot `index`; `None` beyond the last.
    #[inline]
    pub(super) fn address(&self, index: usize) -> Option<u64> {
        (index < self.count).then(|| self.base.as_ptr() as u64 + (index * self.stride) as u64)
    }

    fn start(&self, index: usize) -> Option<NonNull<u8>> {
        // SAFETY: inside the memory, whose size was computed without an overflow (`bytes`).
        (index < self.count).then(|| unsafe { self.base.add(index * self.stride) })
    }

    /// Copies as many of `bytes` as fit to slot `index`. Returns how many; `None` beyond the last slot.
    pub(super) fn write(&mut self, index: usize, bytes: &[u8]) -> Option<usize> {
        let start = self.start(index)?;
        let bytes = &bytes[..bytes.len().min(self.slot)];
        let (words, rest) = bytes.as_chunks::<WORD>();
        for (place, word) in words.iter().enumerate() {
            // SAFETY: inside the slot, at a multiple of a word from its start; nobody writes it but atomically (`new`).
            let to = unsafe { AtomicU64::from_ptr(start.add(place * WORD).as_ptr().cast()) };
            to.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
        for (place, byte) in rest.iter().enumerate() {
            // SAFETY: inside the slot; nobody writes it but atomically (`new`).
            let to = unsafe { AtomicU8::from_ptr(start.add(words.len() * WORD + place).as_ptr()) };
            to.store(*byte, Ordering::Relaxed);
        }
        Some(bytes.len())
    }

    /// Copies slot `index` from `offset` on, a multiple of 8, into `into`. False if there is no such slot or range.
    #[must_use]
    pub(super) fn read(&self, index: usize, offset: usize, into: &mut [u8]) -> bool {
        let Some(start) = self.start(index) else { return false };
        let is_inside = offset.checked_add(into.len()).is_some_and(|end| end <= self.slot);
        if !is_inside || !offset.is_multiple_of(WORD) {
            return false;
        }
        let (words, rest) = into.as_chunks_mut::<WORD>();
        let after_words = offset + words.len() * WORD;
        for (place, word) in words.iter_mut().enumerate() {
            // SAFETY: inside the slot, at a multiple of a word from its start; nobody writes it but atomically (`new`).
            let from = unsafe { AtomicU64::from_ptr(start.add(offset + place * WORD).as_ptr().cast()) };
            *word = from.load(Ordering::Relaxed).to_ne_bytes();
        }
        for (place, byte) in rest.iter_mut().enumerate() {
            // SAFETY: inside the slot; nobody writes it but atomically (`new`).
            let from = unsafe { AtomicU8::from_ptr(start.add(after_words + place).as_ptr()) };
            *byte = from.load(Ordering::Relaxed);
        }
        true
    }
}

/// Distance between slots: an odd number of cache lines. Powers of two would use the same few sets of every cache.
fn stride(slot: usize) -> Option<usize> {
    let lines = slot.div_ceil(ALIGNMENT);
    (lines | 1).checked_mul(ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C, align(64))]
    #[derive(Clone, Copy)]
    struct Line([u8; ALIGNMENT]);

    struct Made {
        slots: Slots,
        memory: *mut [Line],
    }

    impl Made {
        fn new(slot: usize, count: usize) -> Made {
            let lines = Slots::bytes(slot, count).expect("slots") / ALIGNMENT;
            let memory = Box::into_raw(vec![Line([0; ALIGNMENT]); lines].into_boxed_slice());
            let base = NonNull::new(memory.cast::<u8>()).expect("an allocation");
            // SAFETY: allocated for these slots just now, reached by nothing else, freed in `drop`.
            let slots = unsafe { Slots::new(base, slot, count) }.expect("slots");
            Made { slots, memory }
        }
    }

    impl Drop for Made {
        fn drop(&mut self) {
            // SAFETY: made by `Box::into_raw`, freed once.
            drop(unsafe { Box::from_raw(self.memory) });
        }
    }

    #[test]
    fn a_slot_returns_the_bytes_written_to_it_and_no_other_slot_does() {
        let mut made = Made::new(100, 3);
        let bytes: Vec<u8> = (1..=100).collect();
        assert_eq!(made.slots.write(1, &bytes), Some(100));
        let mut back = [0; 100];
        assert!(made.slots.read(1, 0, &mut back));
        assert_eq!(back[..], bytes);
        assert!(made.slots.read(1, 40, &mut back[..60]));
        assert_eq!(back[..60], bytes[40..]);
        for other in [0, 2] {
            assert!(made.slots.read(other, 0, &mut back));
            assert_eq!(back, [0; 100]);
        }
    }

    #[test]
    fn write_cuts_off_bytes_that_do_not_fit() {
        let mut made = Made::new(13, 2);
        assert_eq!(made.slots.write(0, &[7; 200]), Some(13));
        let mut back = [0; 13];
        assert!(made.slots.read(0, 0, &mut back));
        assert_eq!(back, [7; 13]);
        assert!(made.slots.read(1, 0, &mut back));
        assert_eq!(back, [0; 13]);
    }

    #[test]
    fn slots_refuse_an_index_or_range_beyond_the_last() {
        let mut made = Made::new(64, 2);
        assert_eq!(made.slots.write(2, b"x"), None);
        assert_eq!(made.slots.address(2), None);
        assert!(!made.slots.read(2, 0, &mut [0; 1]));
        assert!(!made.slots.read(0, 64, &mut [0; 1]));
        assert!(!made.slots.read(0, usize::MAX - 7, &mut [0; 16]));
        assert!(!made.slots.read(0, 4, &mut [0; 8]), "words are read where they lie");
        assert!(made.slots.read(0, 64, &mut []));
    }

    #[test]
    fn slots_start_at_lines_an_odd_number_apart() {
        let made = Made::new(128, 3);
        let starts: Vec<_> = (0..3).filter_map(|index| made.slots.address(index)).collect();
        assert_eq!(starts[1] - starts[0], 3 * ALIGNMENT as u64);
        assert!(starts.iter().all(|start| start.is_multiple_of(ALIGNMENT as u64)));
    }

    #[test]
    fn bytes_refuses_slots_that_exceed_memory() {
        assert_eq!(Slots::bytes(usize::MAX, 1), None);
        assert_eq!(Slots::bytes(1 << 40, 1 << 40), None);
        assert_eq!(Slots::bytes(64, 0), None);
    }

    /// The thread stands for the adapter, which writes the slot again and again, a word at a time.
    #[test]
    fn a_reader_may_copy_a_slot_during_a_write() {
        let made = Made::new(64, 1);
        let address = made.slots.address(0).expect("a slot") as usize;
        let adapter = std::thread::spawn(move || {
            for round in 0..20_u8 {
                for word in 0..8 {
                    let place = std::ptr::with_exposed_provenance_mut::<u64>(address + word * WORD);
                    // SAFETY: inside the slot, which outlives this thread, and accessed atomically only.
                    unsafe { AtomicU64::from_ptr(place) }.store(u64::from_ne_bytes([round; 8]), Ordering::Relaxed);
                }
            }
        });
        let mut seen = [0; 64];
        while !adapter.is_finished() {
            assert!(made.slots.read(0, 0, &mut seen));
            assert!(seen.chunks(WORD).all(|word| word.iter().all(|byte| *byte == word[0])), "a word is never torn");
        }
        adapter.join().expect("it does not fail");
        assert!(made.slots.read(0, 0, &mut seen));
        assert_eq!(seen, [19; 64]);
    }
}
