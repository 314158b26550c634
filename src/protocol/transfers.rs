// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers by which one process names a transfer of its own to another, and what each is of.
//!
//! A number that came over the network is looked up, never followed, and one whose transfer has ended is refused, also when
//! its place is used again. Pending grade: a place that is free is used before another is made. Threads: the owner's. Tests:
//! at the end of the file.

/// The number of a transfer: its place, and above it how often the place was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransferId(pub u64);

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
    pub fn begin(&mut self, what: T) -> TransferId {
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { uses: 0, what: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[at as usize];
        slot.what = Some(what);
        TransferId(u64::from(slot.uses) << 32 | u64::from(at))
    }

    /// What it is of; `None` where there is no such transfer any more.
    #[must_use]
    pub fn get(&self, id: TransferId) -> Option<T> {
        let slot = self.slots.get(id.0 as u32 as usize)?;
        slot.what.filter(|_| slot.uses == (id.0 >> 32) as u32)
    }

    /// Ends one.
    pub fn end(&mut self, id: TransferId) -> Option<T> {
        let what = self.get(id)?;
        let at = id.0 as u32;
        let slot = &mut self.slots[at as usize];
        slot.uses = slot.uses.wrapping_add(1);
        slot.what = None;
        self.free.push(at);
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
        assert_eq!(third.0 as u32, first.0 as u32, "its place is used again");
        assert_eq!((transfers.get(first), transfers.get(third), transfers.get(second)), (None, Some('c'), Some('b')));
        assert_eq!(transfers.get(TransferId(77)), None);
    }
}
