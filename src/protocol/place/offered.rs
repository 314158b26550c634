// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiver's side: the offers to one sender in a communicator that are outstanding.
//!
//! Called by whoever posts receives and deals with what comes, in order. The rules and why they are right are in `place.rs`. Grade:
//! pending. Threads: the owner's. Tests: `tests/`.

use std::collections::VecDeque;

use super::offer::{Epoch, MOST, Offer, OfferId, OfferIds, Refused};

/// An offer whose receive is posted, and that the sender has accepted, or will accept or refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outstanding<R> {
    /// Its number.
    pub id: OfferId,
    /// The receive.
    pub request: R,
    /// Whether the receive is to be cancelled.
    pub is_withdrawn: bool,
}

/// The outstanding offers to a sender.
#[derive(Debug, Clone)]
pub struct Offered<R> {
    /// What the sender has told last.
    pub(super) epoch: Epoch,
    /// Counted messages that were dealt with since.
    pub(super) unplaced: u32,
    /// In the order in which they were made.
    pub(super) outstanding: VecDeque<Outstanding<R>>,
}

impl<R> Default for Offered<R> {
    fn default() -> Self {
        Offered { epoch: Epoch::NONE, unplaced: 0, outstanding: VecDeque::new() }
    }
}

impl<R: Copy> Offered<R> {
    /// Offers a receive that is posted. `None`: enough are outstanding.
    ///
    /// The caller answers for this: the receive names the sender and this tag, and each receive that was posted before it and could take
    /// such a message has an offer outstanding here.
    pub fn offer<P>(&mut self, tag: i32, place: P, request: R, ids: &mut OfferIds) -> Option<Offer<P>> {
        let oldest = self.outstanding.front();
        if self.outstanding.len() >= MOST || oldest.is_some_and(|oldest| oldest.id.is_apart(ids.next())) {
            return None;
        }
        let id = ids.take();
        self.outstanding.push_back(Outstanding { id, request, is_withdrawn: false });
        Some(Offer { id, epoch: self.epoch, after: self.unplaced, tag, place })
    }

    /// An unplaced message came that says that it is counted.
    pub fn count(&mut self) {
        self.unplaced = self.unplaced.wrapping_add(1);
    }

    /// Takes out an offer: its receive has its message, written to the place or not, or the sender has answered that it will not use it. `None`:
    /// there is no such offer.
    pub fn end(&mut self, id: OfferId) -> Option<Outstanding<R>> {
        let at = self.outstanding.iter().position(|offer| offer.id == id)?;
        self.outstanding.remove(at)
    }

    /// The receive of an offer is to be cancelled, which the sender is to be told. False: it was before, or there is no such offer.
    #[must_use]
    pub fn withdraw(&mut self, id: OfferId) -> bool {
        let offer = self.outstanding.iter_mut().find(|offer| offer.id == id);
        offer.is_some_and(|offer| !std::mem::replace(&mut offer.is_withdrawn, true))
    }

    /// The sender refuses. Returns the offers that are void, in order: their receives are posted as ever, and may be offered again; those that were
    /// withdrawn are cancelled.
    pub fn refused(&mut self, refused: Refused) -> VecDeque<Outstanding<R>> {
        (self.epoch, self.unplaced) = (refused.epoch, 0);
        let accepted = self.outstanding.iter().take_while(|offer| !offer.id.is_from(refused.id)).count();
        self.outstanding.split_off(accepted)
    }

    /// The connection has gone. Returns what [`Offered::refused`] does.
    pub fn void(&mut self) -> VecDeque<Outstanding<R>> {
        std::mem::take(self).outstanding
    }
}
