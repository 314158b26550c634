// SPDX-License-Identifier: MIT OR Apache-2.0
//! What sender and receiver say to each other of places. Plain data, and the counters of a process that its numbers are
//! from.

/// Offers of a pair that are outstanding at a time, at most.
pub const MOST: usize = 16;

/// The number of an offer: those of a process count up, through all its communicators, and begin again after 2^32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OfferId(pub u32);

/// Ids that are further apart are not compared: an offer that is so old holds back new ones.
const APART: u32 = 1 << 30;

impl OfferId {
    /// Whether it is `other`, or was made later.
    #[must_use]
    pub const fn is_from(self, other: OfferId) -> bool {
        self.0.wrapping_sub(other.0) <= u32::MAX / 2
    }

    /// Whether it is too old to be compared with one that is made now.
    #[must_use]
    pub const fn is_apart(self, now: OfferId) -> bool {
        now.0.wrapping_sub(self.0) >= APART
    }
}

/// The numbers of a process' offers.
#[derive(Debug, Clone, Default)]
pub struct OfferIds(u32);

impl OfferIds {
    /// The number of the next offer.
    #[must_use]
    pub const fn next(&self) -> OfferId {
        OfferId(self.0)
    }

    /// Takes it.
    pub fn take(&mut self) -> OfferId {
        let id = self.next();
        self.0 = self.0.wrapping_add(1);
        id
    }
}

/// What a sender has told when it refused: which offers know of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Epoch(pub u32);

impl Epoch {
    /// None was told.
    pub const NONE: Epoch = Epoch(0);
}

/// The epochs that a process tells, each once.
#[derive(Debug, Clone, Default)]
pub struct Epochs(u32);

impl Epochs {
    /// One that was not told, but long ago.
    pub fn take(&mut self) -> Epoch {
        self.0 = if self.0 == u32::MAX { 1 } else { self.0 + 1 };
        Epoch(self.0)
    }
}

/// The receiver says: a message with this tag may be written there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer<P> {
    /// By which the write names it.
    pub id: OfferId,
    /// What the receiver has heard last.
    pub epoch: Epoch,
    /// How many counted messages it has dealt with since.
    pub after: u32,
    /// The tag.
    pub tag: i32,
    /// The place.
    pub place: P,
}

/// The sender says: this offer is void, and each that was made after it before this arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// The offer.
    pub id: OfferId,
    /// What new offers are to have.
    pub epoch: Epoch,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_compared_over_the_end_of_their_range() {
        let (old, new) = (OfferId(u32::MAX - 1), OfferId(3));
        assert!(new.is_from(old) && old.is_from(old) && !old.is_from(new));
        assert!(!old.is_apart(new) && old.is_apart(OfferId(APART - 2)));
    }

    #[test]
    fn no_epoch_is_the_one_that_nobody_told() {
        let mut epochs = Epochs(u32::MAX - 1);
        assert_eq!([epochs.take(), epochs.take()], [Epoch(u32::MAX), Epoch(1)]);
    }
}
