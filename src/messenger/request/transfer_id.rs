// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers by which one process names its requests to another, and the request of each number. [`Transfers`] looks
//! a number from the network up, and never uses it as an address. It refuses a number whose transfer has ended, until
//! its place has been used 512 times. Places beyond the first 2^22 have no room for a count of uses, so it refuses
//! their numbers only while the place is free. Called by the protocols. Grade: pending. Threads: the one that has
//! entered the messenger. Tests: below.

/// The number of a transfer: its place in the low bits, and above it how often the place was used; or, with the highest
/// bit set, a place of 31 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransferId(pub u32);

const PLACE: u32 = 22;

/// Mark of a place that needs more bits.
const BEYOND: u32 = 1 << 31;

impl TransferId {
    const fn new(place: u32, uses: u32) -> Self {
        if place >> PLACE == 0 { TransferId((uses << PLACE | place) & !BEYOND) } else { TransferId(BEYOND | place) }
    }

    const fn place(self) -> usize {
        let bits = if self.0 & BEYOND == 0 { (1 << PLACE) - 1 } else { !BEYOND };
        (self.0 & bits) as usize
    }
}

#[derive(Debug)]
struct Slot<T> {
    uses: u32,
    what: Option<T>,
}

/// The transfers that have begun and not ended.
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
    /// Begins a transfer. Memory limits their number: 2^31 take more than any process has.
    pub fn begin(&mut self, what: T) -> TransferId {
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { uses: 0, what: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[place as usize];
        slot.what = Some(what);
        TransferId::new(place, slot.uses)
    }

    /// Returns the value of the transfer with this number; `None` if it has ended or never was.
    pub fn get(&self, id: TransferId) -> Option<T> {
        let slot = self.slots.get(id.place())?;
        slot.what.filter(|_| TransferId::new(id.place() as u32, slot.uses) == id)
    }

    /// Number of the transfers that have begun and not ended.
    pub fn in_use(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Ends a transfer.
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
    fn a_number_leads_to_its_transfer_until_that_ends() {
        let mut transfers = Transfers::default();
        let (first, second) = (transfers.begin('a'), transfers.begin('b'));
        assert_eq!((transfers.get(first), transfers.get(second)), (Some('a'), Some('b')));
        assert_eq!((transfers.end(first), transfers.end(first)), (Some('a'), None));
        let third = transfers.begin('c');
        assert_eq!(third.place(), first.place(), "its place is used again");
        assert_eq!((transfers.get(first), transfers.get(third), transfers.get(second)), (None, Some('c'), Some('b')));
        assert_eq!((transfers.get(TransferId(77)), transfers.in_use()), (None, 2));
    }
    #[test]
    fn transfers_stay_distinct_when_the_count_of_uses_overflows() {
        let many = (1 << PLACE) + 2;
        let mut transfers = Transfers::default();
        let ids: Vec<_> = (0..many).map(|number| transfers.begin(number)).collect();
        for at in [0, 1, (1 << PLACE) - 1, 1 << PLACE, (1 << PLACE) + 1] {
            assert_eq!(transfers.get(ids[at as usize]), Some(at));
        }
        let last = ids[many as usize - 1];
        assert_eq!((transfers.end(last), transfers.get(last), transfers.end(last)), (Some(many - 1), None, None));
        assert_eq!(transfers.end(ids[1]), Some(1));
        let (again, beyond) = (transfers.begin(7), transfers.begin(8));
        assert_eq!((transfers.get(again), transfers.get(ids[1])), (Some(7), None), "its place is used again");
        assert_eq!((beyond, transfers.get(beyond)), (last, Some(8)));
    }

    #[test]
    fn get_refuses_a_number_until_its_place_was_used_512_times() {
        let mut transfers = Transfers::default();
        let first = transfers.begin(0);
        transfers.end(first);
        for round in 1..512 {
            let id = transfers.begin(round);
            assert_eq!((transfers.get(first), transfers.end(id)), (None, Some(round)));
        }
        assert_eq!(transfers.begin(512), first);
    }

    #[test]
    fn the_count_of_uses_may_wrap() {
        let mut transfers = Transfers::default();
        let first = transfers.begin(0);
        transfers.end(first);
        transfers.slots[0].uses = u32::MAX;
        let last = transfers.begin(1);
        assert_eq!((transfers.get(last), transfers.end(last)), (Some(1), Some(1)));
        let next = transfers.begin(2);
        assert_eq!((transfers.get(last), transfers.get(next)), (None, Some(2)));
    }
}
