// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ends of operations in a queue, in the order in which they were pushed: a ring, which doubles when it is full,
//! because nothing bounds the number of completions that a program does not read. Grade: hot. Threads: the one inside
//! the domain. Tests: below.

use super::Completion;

/// Number of entries for which there is room at first.
const FIRST: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    completion: Completion,
    /// The operation has failed, so only [`Ring::take_failure`] takes it.
    has_failed: bool,
}

#[derive(Debug)]
pub(super) struct Ring {
    /// A power of two.
    entries: Box<[Entry]>,
    /// Number of entries that were taken, and that were pushed.
    taken: u64,
    pushed: u64,
}

impl Default for Ring {
    fn default() -> Self {
        Ring { entries: vec![Entry::default(); FIRST].into(), taken: 0, pushed: 0 }
    }
}

impl Ring {
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.taken == self.pushed
    }

    /// Number of entries that were taken.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    #[inline(always)]
    pub(super) fn push(&mut self, completion: Completion) {
        self.push_entry(Entry { completion, has_failed: false });
    }

    pub(super) fn push_failure(&mut self, completion: Completion) {
        self.push_entry(Entry { completion, has_failed: true });
    }

    #[inline(always)]
    fn push_entry(&mut self, entry: Entry) {
        if self.pushed - self.taken == self.entries.len() as u64 {
            self.grow();
        }
        let index = self.index(self.pushed);
        self.entries[index] = entry;
        self.pushed += 1;
    }

    /// Takes the oldest entry unless it is a failure.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<&Completion> {
        if self.is_empty() {
            return None;
        }
        let index = self.index(self.taken);
        let Entry { completion, has_failed } = &self.entries[index];
        if *has_failed {
            return None;
        }
        self.taken += 1;
        Some(completion)
    }

    /// Whether the oldest entry is a failure.
    pub(super) fn has_failure(&self) -> bool {
        !self.is_empty() && self.entries[self.index(self.taken)].has_failed
    }

    /// Takes the oldest entry if it is a failure.
    pub(super) fn take_failure(&mut self) -> Option<Completion> {
        if !self.has_failure() {
            return None;
        }
        let index = self.index(self.taken);
        self.taken += 1;
        Some(self.entries[index].completion)
    }

    #[inline(always)]
    fn index(&self, number: u64) -> usize {
        number as usize & (self.entries.len() - 1)
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let mut grown = Ring { entries: vec![Entry::default(); self.entries.len() * 2].into(), ..*self };
        for number in self.taken..self.pushed {
            let index = grown.index(number);
            grown.entries[index] = self.entries[self.index(number)];
        }
        *self = grown;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(context: usize) -> Completion {
        Completion { context, ..Completion::default() }
    }

    #[test]
    fn completions_come_in_order_however_many_wait() {
        let (mut ring, mut next) = (Ring::default(), 0);
        let mut take = |ring: &mut Ring| {
            let is_next = ring.take().copied() == Some(completion(next));
            next += usize::from(is_next);
            is_next
        };
        for context in 0..1000 {
            ring.push(completion(context));
            assert!(context % 3 > 0 || take(&mut ring));
        }
        assert_eq!((ring.taken, ring.pushed), (334, 1000));
        while take(&mut ring) {}
        assert_eq!((ring.taken, ring.is_empty(), ring.take()), (1000, true, None));
    }

    #[test]
    fn a_failure_is_taken_in_its_turn_and_by_nobody_else() {
        let mut ring = Ring::default();
        assert_eq!((ring.take_failure(), ring.has_failure()), (None, false));
        ring.push(completion(1));
        ring.push_failure(completion(2));
        ring.push(completion(3));
        assert_eq!(ring.take_failure(), None, "a completion is before it");
        assert_eq!((ring.take().copied(), ring.has_failure()), (Some(completion(1)), true));
        assert_eq!((ring.take().copied(), ring.take_failure()), (None, Some(completion(2))));
        assert_eq!((ring.take_failure(), ring.take().copied()), (None, Some(completion(3))));
        // The place of the failure is used again.
        for context in 4..200 {
            ring.push(completion(context));
            assert_eq!((ring.has_failure(), ring.take().copied()), (false, Some(completion(context))));
        }
    }
}
