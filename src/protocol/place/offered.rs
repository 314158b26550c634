// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiver's side: the offers to one sender in a communicator that are outstanding.
//!
//! Called by whoever posts receives and deals with what comes, in order. The rules and why they are right are in
//! `place.rs`. Grade: pending. Threads: the owner's. Tests: `tests/`.

use std::collections::VecDeque;

use super::offer::{Epoch, MOST, Offer, OfferId, OfferIds, Refused};

/// An offer whose receive is posted, and that the sender has accepted, or will accept or refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outstanding<R> {
    /// Its number.
    pub id: OfferId,
    /// Its tag.
    pub tag: i32,
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
    /// Tags of which a receive may be posted that is not offered, and how many of them may be offered again yet; others
    /// count for ever.
    pub(super) held_back: Vec<(i32, u32)>,
}

impl<R> Default for Offered<R> {
    fn default() -> Self {
        Offered { epoch: Epoch::NONE, unplaced: 0, outstanding: VecDeque::new(), held_back: Vec::new() }
    }
}

impl<R: Copy> Offered<R> {
    /// Whether a receive that is posted now, names the sender and has this tag may be offered. `is_first`: no receive
    /// that was posted before it could take such a message.
    ///
    /// So a receive costs nothing here unless it is to be offered, or is posted while offers are outstanding
    /// ([`Offered::hold_back`]).
    #[must_use]
    pub fn may_offer(&self, tag: i32, is_first: bool) -> bool {
        is_first || self.has(tag) && !self.held_back.iter().any(|(held_back, _)| *held_back == tag)
    }

    fn has(&self, tag: i32) -> bool {
        self.outstanding.iter().any(|offer| offer.tag == tag)
    }

    /// A receive is posted that could take messages of the sender with this tag, or with any, and is not offered. Where
    /// no offers are outstanding this need not be said.
    pub fn hold_back(&mut self, tag: Option<i32>) {
        // What has no offer outstanding begins anew with the first.
        let outstanding = &self.outstanding;
        self.held_back.retain(|(tag, _)| outstanding.iter().any(|offer| offer.tag == *tag));
        for offer in outstanding.iter().filter(|offer| tag.is_none_or(|tag| tag == offer.tag)) {
            hold_back(&mut self.held_back, offer.tag);
        }
    }

    /// Offers a receive that is posted. `None`: enough are outstanding, and it holds back others.
    ///
    /// The caller answers for this: each receive that was posted before it and could take such a message has an offer
    /// outstanding here. What [`Offered::may_offer`] permits is so, if `is_first` is what it was there.
    pub fn offer<P>(&mut self, tag: i32, is_first: bool, place: P, request: R, ids: &mut OfferIds) -> Option<Offer<P>> {
        if is_first {
            self.held_back.retain(|(held_back, _)| *held_back != tag);
        }
        let offer = self.make(tag, place, request, ids);
        if offer.is_none() {
            self.hold_back(Some(tag));
        }
        offer
    }

    /// Offers the receive of an offer again that was just said to be void; those of its tag that were before it were
    /// offered again before.
    pub fn offer_again<P>(&mut self, void: Outstanding<R>, place: P, ids: &mut OfferIds) -> Option<Offer<P>> {
        let offer = self.make(void.tag, place, void.request, ids)?;
        for (_, times) in self.held_back.iter_mut().filter(|(tag, _)| *tag == void.tag) {
            *times -= 1;
        }
        self.held_back.retain(|(_, times)| *times > 0);
        Some(offer)
    }

    fn make<P>(&mut self, tag: i32, place: P, request: R, ids: &mut OfferIds) -> Option<Offer<P>> {
        let oldest = self.outstanding.front();
        if self.outstanding.len() >= MOST || oldest.is_some_and(|oldest| oldest.id.is_apart(ids.next())) {
            return None;
        }
        let id = ids.take();
        self.outstanding.push_back(Outstanding { id, tag, request, is_withdrawn: false });
        Some(Offer { id, epoch: self.epoch, after: self.unplaced, tag, place })
    }

    /// An unplaced message came that says that it is counted.
    pub fn count(&mut self) {
        self.unplaced = self.unplaced.wrapping_add(1);
    }

    /// Takes out an offer: its receive has its message, written to the place or not, or the sender has answered that it
    /// will not use it. `None`: there is no such offer.
    pub fn end(&mut self, id: OfferId) -> Option<Outstanding<R>> {
        let at = self.outstanding.iter().position(|offer| offer.id == id)?;
        self.outstanding.remove(at)
    }

    /// The receive of an offer is to be cancelled, which the sender is to be told. False: it was before, or there is no
    /// such offer.
    #[must_use]
    pub fn withdraw(&mut self, id: OfferId) -> bool {
        let offer = self.outstanding.iter_mut().find(|offer| offer.id == id);
        offer.is_some_and(|offer| !std::mem::replace(&mut offer.is_withdrawn, true))
    }

    /// The sender refuses. Returns the offers that are void, in order: their receives are posted as ever, and may be
    /// offered again now; those that were withdrawn are cancelled.
    pub fn refused(&mut self, refused: Refused) -> VecDeque<Outstanding<R>> {
        (self.epoch, self.unplaced) = (refused.epoch, 0);
        let accepted = self.outstanding.iter().take_while(|offer| !offer.id.is_from(refused.id)).count();
        self.end_from(accepted)
    }

    /// The connection has gone. Returns what [`Offered::refused`] does.
    pub fn void(&mut self) -> VecDeque<Outstanding<R>> {
        (self.epoch, self.unplaced) = (Epoch::NONE, 0);
        self.end_from(0)
    }

    fn end_from(&mut self, first: usize) -> VecDeque<Outstanding<R>> {
        let void = self.outstanding.split_off(first);
        for offer in void.iter().filter(|offer| !offer.is_withdrawn) {
            hold_back(&mut self.held_back, offer.tag);
        }
        void
    }
}

fn hold_back(held_back: &mut Vec<(i32, u32)>, tag: i32) {
    match held_back.iter_mut().find(|(held_back, _)| *held_back == tag) {
        Some((_, times)) => *times = times.saturating_add(1),
        None => held_back.push((tag, 1)),
    }
}
