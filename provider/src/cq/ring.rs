// SPDX-License-Identifier: MIT OR Apache-2.0
//! The completions of a queue, in the order in which they were pushed: a ring, which doubles when it is full, because
//! nothing bounds the number of completions that a program does not read. Grade: hot. Threads: the one inside the
//! domain. Tests: below.

use super::Completion;

/// Number of completions for which there is room at first.
const FIRST: usize = 64;

#[derive(Debug)]
pub(super) struct Ring {
    /// A power of two.
    slots: Box<[Completion]>,
    /// Number of completions that were taken, and that were pushed.
    taken: u64,
    pushed: u64,
}

impl Default for Ring {
    fn default() -> Self {
        Ring { slots: vec![Completion::default(); FIRST].into(), taken: 0, pushed: 0 }
    }
}

impl Ring {
    /// Returns how many completions were taken so far.
    #[inline(always)]
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns how many completions were pushed so far.
    #[inline(always)]
    pub(super) fn pushed(&self) -> u64 {
        self.pushed
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.taken == self.pushed
    }

    #[inline(always)]
    fn slot(&self, number: u64) -> usize {
        number as usize & (self.slots.len() - 1)
    }

    #[inline(always)]
    pub(super) fn push(&mut self, completion: Completion) {
        if self.pushed - self.taken == self.slots.len() as u64 {
            self.grow();
        }
        let slot = self.slot(self.pushed);
        self.slots[slot] = completion;
        self.pushed += 1;
    }

    /// Takes the oldest completions, at most `most` of them, and returns their number.
    #[inline(always)]
    pub(super) fn take(&mut self, most: usize, mut with: impl FnMut(usize, &Completion)) -> usize {
        let (slots, first) = (&*self.slots, self.taken as usize);
        let count = most.min((self.pushed - self.taken) as usize);
        for index in 0..count {
            with(index, &slots[(first + index) & (slots.len() - 1)]);
        }
        self.taken += count as u64;
        count
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let mut grown = Ring { slots: vec![Completion::default(); self.slots.len() * 2].into(), ..*self };
        for number in self.taken..self.pushed {
            let slot = grown.slot(number);
            grown.slots[slot] = self.slots[self.slot(number)];
        }
        *self = grown;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_come_in_order_however_many_wait() {
        let (mut ring, mut next) = (Ring::default(), 0);
        for context in 0..1000 {
            ring.push(Completion { context, ..Completion::default() });
            if context % 3 == 0 {
                let taken = ring.take(2, |index, completion| assert_eq!(completion.context, next + index));
                next += taken;
            }
        }
        assert_eq!((ring.taken(), ring.pushed(), next), (667, 1000, 667));
        assert_eq!(ring.take(usize::MAX, |index, completion| assert_eq!(completion.context, 667 + index)), 333);
        assert!(ring.is_empty());
    }
}
