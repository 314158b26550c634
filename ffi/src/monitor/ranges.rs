// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ranges of memory that this process has changed last: a ring that hooks write from any thread, and that each
//! [`Cursor`] reads. A writer allocates nothing, takes no lock and waits for nobody. A reader that cannot read a range,
//! because it is overwritten or not written yet, learns that any memory may have changed.
//!
//! Grade: setup; a cursor that finds nothing new loads one word. Threads: any. Tests: below.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

use super::calls::PAGE;

/// Number of ranges that a reader may be behind.
const LENGTH: usize = 512;

/// State of a place that a writer fills.
const BUSY: u64 = u64::MAX;

struct Place {
    /// 1 more than the number of the range in it; 0: none; or [`BUSY`].
    state: AtomicU64,
    start: AtomicUsize,
    end: AtomicUsize,
}

/// A ring of ranges.
pub(super) struct Ranges {
    /// Number of ranges ever told.
    told: AtomicU64,
    places: [Place; LENGTH],
}

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// The pages of these addresses.
    Range(Range<usize>),
    /// Any pages.
    Any,
}

/// A place in the sequence of ranges.
#[derive(Debug)]
pub(super) struct Cursor(u64);

impl Place {
    const fn empty() -> Self {
        Place { state: AtomicU64::new(0), start: AtomicUsize::new(0), end: AtomicUsize::new(0) }
    }
}

impl Ranges {
    pub(super) const fn new() -> Self {
        Ranges { told: AtomicU64::new(0), places: [const { Place::empty() }; LENGTH] }
    }

    /// Notes that these bytes will change with their pages.
    pub(super) fn tell(&self, start: usize, bytes: usize) {
        // AcqRel: a reader that sees the number has all that its program did before it looks.
        let number = self.told.fetch_add(1, Ordering::AcqRel);
        let place = &self.places[number as usize % LENGTH];
        if place.state.swap(BUSY, Ordering::Acquire) == BUSY {
            // Another writer is a whole ring behind. Readers will not find this number, so they learn of any change.
            return;
        }
        // As in a sequence lock: a reader that sees the new range sees that the place was busy.
        fence(Ordering::Release);
        place.start.store(start / PAGE * PAGE, Ordering::Relaxed);
        place
            .end
            .store(start.saturating_add(bytes).checked_next_multiple_of(PAGE).unwrap_or(usize::MAX), Ordering::Relaxed);
        place.state.store(number + 1, Ordering::Release);
    }

    /// Returns a cursor for what will be told.
    pub(super) fn cursor(&self) -> Cursor {
        Cursor(self.told.load(Ordering::Acquire))
    }

    /// Passes over all that has been told, and calls `each` with it.
    pub(super) fn read(&self, cursor: &mut Cursor, mut each: impl FnMut(Changed)) {
        // Acquire: a hook tells before the call that changes memory, so whoever uses memory that it has got since sees
        // the number.
        let told = self.told.load(Ordering::Acquire);
        let new = std::mem::replace(&mut cursor.0, told)..told;
        if new.end - new.start > LENGTH as u64 {
            return each(Changed::Any);
        }
        for number in new {
            match self.range(number) {
                Some(range) => each(Changed::Range(range)),
                None => return each(Changed::Any),
            }
        }
    }

    fn range(&self, number: u64) -> Option<Range<usize>> {
        let place = &self.places[number as usize % LENGTH];
        let is_there = |order| place.state.load(order) == number + 1;
        if !is_there(Ordering::Acquire) {
            return None;
        }
        let range = place.start.load(Ordering::Relaxed)..place.end.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        is_there(Ordering::Relaxed).then_some(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(ranges: &Ranges, cursor: &mut Cursor) -> Vec<Changed> {
        let mut all = Vec::new();
        ranges.read(cursor, |changed| all.push(changed));
        all
    }

    #[test]
    fn a_cursor_reads_each_range_that_is_told_after_it_once_in_whole_pages() {
        let ranges = Ranges::new();
        ranges.tell(0, 1);
        let mut cursor = ranges.cursor();
        assert_eq!(read(&ranges, &mut cursor), []);
        ranges.tell(3 * PAGE + 5, PAGE);
        ranges.tell(8 * PAGE, usize::MAX);
        let expected = [Changed::Range(3 * PAGE..5 * PAGE), Changed::Range(8 * PAGE..usize::MAX)];
        assert_eq!(read(&ranges, &mut cursor), expected);
        assert_eq!(read(&ranges, &mut cursor), []);
    }

    #[test]
    fn a_cursor_that_is_too_far_behind_or_meets_an_unwritten_range_learns_that_all_may_have_changed() {
        let ranges = Ranges::new();
        let mut cursor = ranges.cursor();
        (0..=LENGTH).for_each(|page| ranges.tell(page * PAGE, PAGE));
        assert_eq!(read(&ranges, &mut cursor), [Changed::Any]);
        ranges.told.fetch_add(1, Ordering::AcqRel);
        ranges.tell(PAGE, PAGE);
        assert_eq!(read(&ranges, &mut cursor), [Changed::Any]);
        assert_eq!(read(&ranges, &mut cursor), []);
    }

    #[test]
    fn threads_that_tell_at_once_lose_no_range() {
        const THREADS: usize = 4;
        const EACH: usize = if cfg!(miri) { 300 } else { 20_000 };
        let ranges = Ranges::new();
        let mut cursor = ranges.cursor();
        std::thread::scope(|scope| {
            let tell = |thread: usize| (0..EACH).for_each(|page| ranges.tell((thread * EACH + page) * PAGE, PAGE));
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || tell(thread))).collect();
            let mut seen = vec![false; THREADS * EACH];
            let mut has_lost = false;
            loop {
                let is_last = threads.iter().all(std::thread::ScopedJoinHandle::is_finished);
                for changed in read(&ranges, &mut cursor) {
                    match changed {
                        Changed::Range(range) => {
                            assert_eq!(range.end - range.start, PAGE, "both ends are of the same range");
                            assert!(!std::mem::replace(&mut seen[range.start / PAGE], true), "a range is read once");
                        }
                        Changed::Any => has_lost = true,
                    }
                }
                if is_last {
                    break;
                }
            }
            assert!(has_lost || seen.iter().all(|seen| *seen), "all ranges were read, or a loss was told");
        });
    }
}
