// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue from callbacks to the writing thread: a fixed number of slots, no lock, no allocation.
//!
//! Callbacks of any thread put records in, the writing thread takes them out. Each slot has a sequence number: the
//! producer at position p waits for sequence p, the consumer for p + 1. A full ring loses new events, which the caller
//! counts per type. The contents are atomics, so a defect here could mix up events but not memory. Called by
//! `session.rs` and `writer.rs`. Grade: [`Ring::put`] hot, and safe in a signal handler; [`Ring::take`] pending.
//! Threads: [`Ring::put`] any, [`Ring::take`] one. Tests: below.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::catalogue::WORDS;

/// A delivered event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoggedEvent {
    /// Index among the types that are logged.
    pub(crate) kind: u32,
    /// Index of its source.
    pub(crate) source: u32,
    /// Time in ticks of the source.
    pub(crate) ticks: i64,
    /// Elements at their displacements.
    pub(crate) data: [u64; WORDS],
}

struct Slot {
    sequence: AtomicUsize,
    head: AtomicU64,
    ticks: AtomicU64,
    data: [AtomicU64; WORDS],
}

pub(crate) struct Ring {
    slots: Box<[Slot]>,
    put: AtomicUsize,
    taken: AtomicUsize,
}

impl Ring {
    /// Makes a ring with room for `room` events, a power of two.
    pub(crate) fn new(room: usize) -> Ring {
        assert!(room.is_power_of_two(), "{room} records");
        let slot = |sequence| Slot {
            sequence: AtomicUsize::new(sequence),
            head: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
            data: [const { AtomicU64::new(0) }; WORDS],
        };
        Ring { slots: (0..room).map(slot).collect(), put: AtomicUsize::new(0), taken: AtomicUsize::new(0) }
    }

    /// Returns the number of events that it can hold.
    pub(crate) fn room(&self) -> usize {
        self.slots.len()
    }

    /// Puts a record in, with the first `words` of its data. Returns false if there is no room.
    #[inline]
    pub(crate) fn put(&self, record: &LoggedEvent, words: usize) -> bool {
        let mut position = self.put.load(Ordering::Relaxed);
        let slot = loop {
            let slot = &self.slots[position & (self.slots.len() - 1)];
            // Acquire: pairs with the release in `take`, so slots are overwritten only after they have been read.
            let sequence = slot.sequence.load(Ordering::Acquire);
            if sequence == position {
                // Relaxed: the sequence orders the contents; this only decides which producer gets the slot.
                let next = position.wrapping_add(1);
                match self.put.compare_exchange_weak(position, next, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => break slot,
                    Err(now) => position = now,
                }
            } else if (sequence.wrapping_sub(position)).cast_signed() < 0 {
                return false;
            } else {
                position = self.put.load(Ordering::Relaxed);
            }
        };
        slot.head.store(u64::from(record.kind) << 32 | u64::from(record.source), Ordering::Relaxed);
        slot.ticks.store(record.ticks.cast_unsigned(), Ordering::Relaxed);
        for (to, from) in slot.data.iter().zip(&record.data).take(words) {
            to.store(*from, Ordering::Relaxed);
        }
        slot.sequence.store(position.wrapping_add(1), Ordering::Release);
        true
    }

    /// Takes the next record out. Called by one thread at a time.
    pub(crate) fn take(&self) -> Option<LoggedEvent> {
        let position = self.taken.load(Ordering::Relaxed);
        let slot = &self.slots[position & (self.slots.len() - 1)];
        // Acquire: pairs with the release in `put`.
        if slot.sequence.load(Ordering::Acquire) != position.wrapping_add(1) {
            return None;
        }
        let head = slot.head.load(Ordering::Relaxed);
        let record = LoggedEvent {
            kind: (head >> 32) as u32,
            source: head as u32,
            ticks: slot.ticks.load(Ordering::Relaxed).cast_signed(),
            data: std::array::from_fn(|word| slot.data[word].load(Ordering::Relaxed)),
        };
        slot.sequence.store(position.wrapping_add(self.slots.len()), Ordering::Release);
        self.taken.store(position.wrapping_add(1), Ordering::Relaxed);
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn record(kind: u32, ticks: i64) -> LoggedEvent {
        LoggedEvent { kind, source: 3, ticks, data: std::array::from_fn(|word| ticks.cast_unsigned() + word as u64) }
    }

    #[test]
    fn records_come_out_as_they_went_in_until_there_is_no_room() {
        let ring = Ring::new(4);
        for sequence in 0..3 {
            assert_eq!(ring.take(), None);
            for ticks in 0..4 {
                assert!(ring.put(&record(1, sequence * 10 + ticks), WORDS));
            }
            assert!(!ring.put(&record(1, 9), WORDS), "full");
            for ticks in 0..4 {
                assert_eq!(ring.take(), Some(record(1, sequence * 10 + ticks)));
            }
        }
    }

    #[test]
    fn what_several_threads_put_in_comes_out_once_and_in_each_ones_order() {
        const EACH: i64 = if cfg!(miri) { 200 } else { 20_000 };
        let (ring, done) = (Ring::new(64), AtomicBool::new(false));
        let mut seen = [0; 3];
        std::thread::scope(|scope| {
            let threads = [0, 1, 2].map(|kind| {
                let ring = &ring;
                scope.spawn(move || {
                    for ticks in 0..EACH {
                        while !ring.put(&record(kind, ticks), WORDS) {
                            std::thread::yield_now();
                        }
                    }
                })
            });
            let (ring, done, seen) = (&ring, &done, &mut seen);
            scope.spawn(move || {
                loop {
                    let last = done.load(Ordering::Acquire);
                    while let Some(got) = ring.take() {
                        let next = &mut seen[got.kind as usize];
                        assert_eq!(got, record(got.kind, *next));
                        *next += 1;
                    }
                    if last {
                        break;
                    }
                    std::thread::yield_now();
                }
            });
            for thread in threads {
                thread.join().expect("no panic");
            }
            done.store(true, Ordering::Release);
        });
        assert_eq!(seen, [EACH; 3]);
    }
}
