// SPDX-License-Identifier: MIT OR Apache-2.0
//! A registration's bounded buffer of instances, with many producers and one consumer at a time.
//!
//! A slot is 128 bytes of atomics, so no access is unsafe: a word is at worst outdated, and the slot's sequence number
//! says whether it is current. Slot `p % capacity` may be filled for position `p` when its sequence is `p`, and read
//! when it is `p + 1`; `pop` then sets it to `p + capacity`, for the next lap.
//!
//! Grade: hot; neither side allocates or waits, and a full buffer refuses at once. Threads: [`Ring::push`] from any,
//! [`Ring::pop`] from one at a time (else instances are lost or repeated). Tests: below, `tests/models.rs`.

use crate::events::sync::{AtomicU64, Ordering};
use crate::events::{EventInstance, SourceId, TypeId, WORDS, Words};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::events) struct Full;

/// Type and source of an instance.
#[derive(Debug, Clone, Copy)]
pub(in crate::events) struct Head(u64);

impl Head {
    #[inline]
    pub(in crate::events) const fn new(event_type: TypeId, source: SourceId) -> Head {
        Head(event_type.index() as u64 | (source.0 as u64) << 16)
    }

    #[inline]
    const fn event_type(self) -> TypeId {
        TypeId(self.0 as u16)
    }

    #[inline]
    const fn source(self) -> SourceId {
        SourceId((self.0 >> 16) as u16)
    }
}

/// Fills two cache lines, so that no two slots share one.
#[repr(align(128))]
struct Slot {
    sequence: AtomicU64,
    head: AtomicU64,
    number: AtomicU64,
    timestamp: AtomicU64,
    words: [AtomicU64; WORDS],
}

#[repr(align(128))]
struct Line(AtomicU64);

#[repr(align(128))]
struct Tail {
    next: AtomicU64,
    /// Positions below this are known to be free, for a single producer ([`Ring::push_alone`]).
    free: AtomicU64,
}

pub(in crate::events) struct Ring {
    tail: Tail,
    head: Line,
    mask: u64,
    slots: Box<[Slot]>,
}

impl Ring {
    pub(in crate::events) fn new(capacity: usize) -> Ring {
        let capacity = capacity.max(2).next_power_of_two();
        let slot = |sequence: usize| Slot {
            sequence: AtomicU64::new(sequence as u64),
            head: AtomicU64::new(0),
            number: AtomicU64::new(0),
            timestamp: AtomicU64::new(0),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        };
        Ring {
            tail: Tail { next: AtomicU64::new(0), free: AtomicU64::new(0) },
            head: Line(AtomicU64::new(0)),
            mask: capacity as u64 - 1,
            slots: (0..capacity).map(slot).collect(),
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    fn slot(&self, position: u64) -> &Slot {
        &self.slots[(position & self.mask) as usize]
    }

    /// Adds an instance, whose first `used` words matter. `number` is its number among all buffered instances.
    // Inlined, this would keep the instance's words in the caller's frame, whether they are needed or not.
    #[inline(never)]
    pub(in crate::events) fn push(&self, instance: &EventInstance, number: u64, used: usize) -> Result<(), Full> {
        let mut position = self.tail.next.load(Ordering::Relaxed);
        let slot = loop {
            let slot = self.slot(position);
            let sequence = slot.sequence.load(Ordering::Acquire);
            match sequence.cmp(&position) {
                // Claims the position; the slot's sequence publishes it. Sequentially consistent with the thread that
                // clears the bit of pending work and then looks whether this is empty (`delivery/drain.rs`).
                std::cmp::Ordering::Equal => {
                    let claimed = self.tail.next.compare_exchange_weak(
                        position,
                        position + 1,
                        Ordering::SeqCst,
                        Ordering::Relaxed,
                    );
                    match claimed {
                        Ok(_) => break slot,
                        Err(now) => position = now,
                    }
                }
                std::cmp::Ordering::Less => return Err(Full),
                std::cmp::Ordering::Greater => position = self.tail.next.load(Ordering::Relaxed),
            }
        };
        slot.head.store(Head::new(instance.event_type, instance.source).0, Ordering::Relaxed);
        slot.number.store(number, Ordering::Relaxed);
        slot.timestamp.store(instance.timestamp, Ordering::Relaxed);
        each_used(used, |index| slot.words[index].store(instance.words[index], Ordering::Relaxed));
        // Pairs with the acquire in `pop`: a thread that sees this sequence sees the words.
        slot.sequence.store(position + 1, Ordering::Release);
        Ok(())
    }

    /// Like [`Self::push`], for a single producer, in one comparison: succeeds if the last [`Self::look_for_room`]
    /// found room. Calls `number` and `words` once the position is claimed, and stores the first `N`. False: not added.
    #[inline(always)]
    pub(in crate::events) fn push_alone<const N: usize>(
        &self,
        timestamp: u64,
        number: impl FnOnce() -> u64,
        words: impl FnOnce() -> Words,
    ) -> bool {
        let position = self.tail.next.load(Ordering::Relaxed);
        if position >= self.tail.free.load(Ordering::Relaxed) {
            return false;
        }
        // Claims the position, as `push` does, but in one instruction, because there is no other producer.
        self.tail.next.fetch_add(1, Ordering::SeqCst);
        let slot = self.slot(position);
        slot.timestamp.store(timestamp, Ordering::Relaxed);
        slot.number.store(number(), Ordering::Relaxed);
        let words = words();
        for (place, word) in slot.words.iter().zip(&words[..N]) {
            place.store(*word, Ordering::Relaxed);
        }
        slot.sequence.store(position + 1, Ordering::Release);
        true
    }

    /// Notes how many positions are free for [`Self::push_alone`]: until half of the room is used. Returns true if half
    /// is used already. All instances have the same type and source, so each slot stores these once and for all.
    #[inline(never)]
    pub(in crate::events) fn look_for_room(&self, head: Head) -> bool {
        if self.tail.free.load(Ordering::Relaxed) == 0 {
            self.slots.iter().for_each(|slot| slot.head.store(head.0, Ordering::Relaxed));
        }
        // Acquire: the positions below were read, and their slots are marked free.
        let half = self.head.0.load(Ordering::Acquire) + self.slots.len() as u64 / 2;
        self.tail.free.store(half, Ordering::Relaxed);
        self.tail.next.load(Ordering::Relaxed) >= half
    }

    /// Number of the oldest instance; `None` if there is none, or its producer has not finished.
    #[inline]
    pub(in crate::events) fn first(&self) -> Option<u64> {
        let position = self.head.0.load(Ordering::Relaxed);
        let slot = self.slot(position);
        (slot.sequence.load(Ordering::Acquire) == position + 1).then(|| slot.number.load(Ordering::Relaxed))
    }

    /// Removes the oldest instance, whose first `used` words matter; `None` as for [`Self::first`].
    #[inline]
    pub(in crate::events) fn pop(&self, used: usize) -> Option<EventInstance> {
        let position = self.head.0.load(Ordering::Relaxed);
        let slot = self.slot(position);
        if slot.sequence.load(Ordering::Acquire) != position + 1 {
            return None;
        }
        let head = Head(slot.head.load(Ordering::Relaxed));
        let mut instance = EventInstance {
            event_type: head.event_type(),
            source: head.source(),
            timestamp: slot.timestamp.load(Ordering::Relaxed),
            words: [0; WORDS],
        };
        each_used(used, |index| instance.words[index] = slot.words[index].load(Ordering::Relaxed));
        // Pairs with the acquire in `push`: a producer fills the slot again only after this read. The head comes last,
        // as `is_empty` concludes from it that the instance is out.
        slot.sequence.store(position + self.mask + 1, Ordering::Release);
        self.head.0.store(position + 1, Ordering::Release);
        Some(instance)
    }

    /// Number of instances in it, those being added or removed included.
    #[inline]
    pub(super) fn len(&self) -> u64 {
        let head = self.head.0.load(Ordering::Acquire);
        self.tail.next.load(Ordering::SeqCst).saturating_sub(head)
    }

    #[inline]
    pub(in crate::events) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Calls `with` for the first `used` words, rounded up to a multiple of four: a loop costs more than its body.
#[inline]
fn each_used(used: usize, mut with: impl FnMut(usize)) {
    for first in [0, 4, 8] {
        if used > first {
            with(first);
            with(first + 1);
            with(first + 2);
            with(first + 3);
        }
    }
}

const _: () = assert!(WORDS == 12, "three lines of four");

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    fn instance(number: u64) -> EventInstance {
        EventInstance { event_type: TypeId(1), source: SourceId(2), timestamp: number, words: [number; WORDS] }
    }

    #[test]
    fn a_slot_is_two_lines() {
        assert_eq!(size_of::<Slot>(), 128);
    }

    #[test]
    fn events_leave_the_ring_in_the_order_of_their_entry_and_a_full_ring_refuses() {
        let ring = Ring::new(5);
        assert_eq!(ring.capacity(), 8);
        for lap in 0..3 {
            for number in 0..8 {
                assert_eq!(ring.push(&instance(lap * 8 + number), 0, WORDS), Ok(()));
            }
            assert_eq!(ring.push(&instance(99), 0, WORDS), Err(Full));
            assert_eq!(ring.len(), 8);
            for number in 0..8 {
                assert_eq!(ring.pop(WORDS), Some(instance(lap * 8 + number)));
            }
            assert_eq!(ring.pop(WORDS), None);
            assert!(ring.is_empty());
        }
    }

    #[test]
    fn a_single_producer_fills_half_of_the_ring_and_continues_once_there_is_room() {
        let ring = Ring::new(8);
        let put = |number| ring.push_alone::<3>(number, || number, || [number; WORDS]);
        let look = || ring.look_for_room(Head::new(TypeId(1), SourceId(2)));
        assert!(!put(0), "it has not looked");
        for lap in 0..5 {
            assert!(!look());
            for number in 0..4 {
                assert!(put(lap * 4 + number));
            }
            assert!(!put(99) && look() && !put(99));
            // `push` takes the other half.
            assert_eq!(ring.push(&instance(100), 0, WORDS), Ok(()));
            for number in 0..4 {
                let out = ring.pop(3).expect("one is in");
                assert_eq!(
                    (out.timestamp, out.words[2], out.source),
                    (lap * 4 + number, lap * 4 + number, SourceId(2))
                );
            }
            assert_eq!(ring.pop(WORDS), Some(instance(100)));
        }
        assert!(ring.is_empty());
    }

    #[test]
    fn the_ring_returns_the_position_of_its_oldest_event_without_removing_it() {
        let ring = Ring::new(2);
        assert_eq!(ring.first(), None);
        for number in [7, 9] {
            assert_eq!(ring.push(&instance(10 * number), number, WORDS), Ok(()));
        }
        for number in [7, 9] {
            assert_eq!(ring.first(), Some(number));
            assert_eq!(ring.pop(WORDS), Some(instance(10 * number)));
        }
        assert_eq!(ring.first(), None);
    }

    #[test]
    fn the_ring_carries_only_the_words_in_use() {
        let ring = Ring::new(2);
        assert_eq!(ring.push(&instance(7), 0, 3), Ok(()));
        let out = ring.pop(3).expect("one is in");
        assert_eq!((&out.words[..3], out.words[11]), (&[7; 3][..], 0));
    }

    #[test]
    fn the_ring_refuses_each_event_of_four_threads_or_returns_it_once_in_its_threads_order() {
        const EACH: u64 = if cfg!(miri) { 200 } else { 20_000 };
        let ring = Ring::new(64);
        let (refused, running) = (AtomicU64::new(0), AtomicUsize::new(4));
        let mut seen = [0_u64; 4];
        let mut count = 0;
        std::thread::scope(|scope| {
            for thread in 0..4_u16 {
                let (ring, refused, running) = (&ring, &refused, &running);
                scope.spawn(move || {
                    for number in 1..=EACH {
                        let one = EventInstance { source: SourceId(thread), ..instance(number) };
                        if ring.push(&one, 0, WORDS).is_err() {
                            refused.fetch_add(1, Ordering::Relaxed);
                            std::thread::yield_now();
                        }
                    }
                    running.fetch_sub(1, Ordering::Release);
                });
            }
            loop {
                let last = running.load(Ordering::Acquire) == 0;
                while let Some(out) = ring.pop(WORDS) {
                    let before = &mut seen[usize::from(out.source.0)];
                    assert!(out.timestamp > *before, "in its thread's order");
                    assert_eq!(out.words, [out.timestamp; WORDS], "not torn");
                    *before = out.timestamp;
                    count += 1;
                }
                if last {
                    break;
                }
            }
        });
        assert_eq!(count + refused.load(Ordering::Relaxed), 4 * EACH);
        assert!(ring.is_empty());
    }
}
