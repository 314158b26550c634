// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers by which one process names a request of its own to another, and what each is of.
//!
//! A number that came over the network is looked up, never followed, and one whose transfer has ended is refused, also
//! when its place is used again, until it was a thousand times. Pending grade: a place that is free is used before
//! another is made. Threads: the owner's. Tests: at the end of the file.

/// The number of a transfer: its place, and above it how often the place was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransferId(pub u32);

/// Bits of a place: as many transfers are under way at most.
const PLACE: u32 = 22;

impl TransferId {
    const fn new(place: u32, uses: u32) -> Self {
        TransferId(uses << PLACE | place)
    }

    const fn place(self) -> usize {
        (self.0 & ((1 << PLACE) - 1)) as usize
    }
}

#[derive(Debug)]
struct Slot<T> {
    uses: u32,
    what: Option<T>,
}

/// The transfers under way.
#[derive(Debug)]
pub struct Transfers<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Default for Transfers<T> {
    fn default() -> Self {
        Transfers { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T: Copy> Transfers<T> {
    /// Begins one.
    ///
    /// # Panics
    /// There are 2^22 already.
    pub fn begin(&mut self, what: T) -> TransferId {
        let place = self.free.pop().unwrap_or_else(|| {
            assert!(self.slots.len() < 1 << PLACE, "there are too many transfers under way");
            self.slots.push(Slot { uses: 0, what: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[place as usize];
        slot.what = Some(what);
        TransferId::new(place, slot.uses)
    }

    /// What it is of; `None` where there is no such transfer any more.
    #[must_use]
    pub fn get(&self, id: TransferId) -> Option<T> {
        let slot = self.slots.get(id.place())?;
        slot.what.filter(|_| TransferId::new(id.place() as u32, slot.uses) == id)
    }

    /// Ends one.
    pub fn end(&mut self, id: TransferId) -> Option<T> {
        let what = self.get(id)?;
        let slot = &mut self.slots[id.place()];
        slot.uses = slot.uses.wrapping_add(1);
        slot.what = None;
        self.free.push(id.place() as u32);
        Some(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_leads_to_its_transfer_and_after_its_end_nowhere() {
        let mut transfers = Transfers::default();
        let (first, second) = (transfers.begin('a'), transfers.begin('b'));
        assert_eq!((transfers.get(first), transfers.get(second)), (Some('a'), Some('b')));
        assert_eq!((transfers.end(first), transfers.end(first)), (Some('a'), None));
        let third = transfers.begin('c');
        assert_eq!(third.place(), first.place(), "its place is used again");
        assert_eq!((transfers.get(first), transfers.get(third), transfers.get(second)), (None, Some('c'), Some('b')));
        assert_eq!(transfers.get(TransferId(77)), None);
    }
}
