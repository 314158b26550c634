// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps the numbers that a process gives to requests and messages to indexes of a vector. Numbers in use at the same
//! time are close to each other, so pages of 512 numbers avoid cache misses, and a number from a damaged file costs at
//! most one page. Path: pending, once per event. Threads: plain data. Tests: below.

use std::collections::HashMap;

const PAGE: u64 = 512;

#[derive(Debug, Default)]
pub(crate) struct Slots {
    pages: Vec<[u32; PAGE as usize]>,
    by_number: HashMap<u64, u32>,
    /// The page of the last look-up.
    last: Option<(u64, u32)>,
}

impl Slots {
    /// Returns the index of a number, counted from 1. 0: the number is new, and the caller writes its index here.
    #[inline]
    pub(crate) fn of(&mut self, number: u64) -> &mut u32 {
        let (page, row) = (number / PAGE, (number % PAGE) as usize);
        let at = match self.last {
            Some((last, at)) if last == page => at,
            _ => self.find(page),
        };
        &mut self.pages[at as usize][row]
    }

    fn find(&mut self, page: u64) -> u32 {
        let pages = &mut self.pages;
        let at = *self.by_number.entry(page).or_insert_with(|| {
            pages.push([0; PAGE as usize]);
            (pages.len() - 1) as u32
        });
        self.last = Some((page, at));
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_a_place_of_its_own() {
        let mut slots = Slots::default();
        for (place, number) in (1..).zip([0, 511, 512, u64::MAX, 7]) {
            assert_eq!(*slots.of(number), 0);
            *slots.of(number) = place;
        }
        assert_eq!([0, 511, 512, u64::MAX, 7].map(|number| *slots.of(number)), [1, 2, 3, 4, 5]);
        assert_eq!(slots.pages.len(), 3);
    }
}
