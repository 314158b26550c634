// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sender's side: the places that one receiver has offered in a communicator and that wait for a message.
//!
//! Called by whoever sends, for each message in the order in which they go, and for what the receiver says. The rules
//! and why they are right are in `place.rs`. Grade: pending. Threads: the owner's. Tests: `tests/`.

use std::collections::VecDeque;

use super::offer::{Epoch, Epochs, MOST, Offer, OfferId, Refused};

/// The accepted offers of a receiver.
#[derive(Debug, Clone)]
pub struct Accepted<P> {
    /// What was told last; none: messages are not counted.
    pub(super) epoch: Epoch,
    /// Unplaced messages since.
    pub(super) unplaced: u32,
    /// In the order in which they were made.
    pub(super) offers: VecDeque<Offer<P>>,
}

/// How a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Going<P> {
    /// It is written.
    Placed(OfferId, P),
    /// As ever; it says whether it is counted.
    Unplaced {
        /// It is.
        is_counted: bool,
    },
}

impl<P> Default for Accepted<P> {
    fn default() -> Self {
        Accepted { epoch: Epoch::NONE, unplaced: 0, offers: VecDeque::new() }
    }
}

/// Refuses an offer in a communicator that there is not.
#[must_use]
pub fn refusal(id: OfferId, epochs: &mut Epochs) -> Refused {
    Refused { id, epoch: epochs.take() }
}

impl<P: Copy> Accepted<P> {
    /// An offer came. It is accepted, or void because of an earlier refusal, or what is returned is to be said.
    pub fn offered(&mut self, offer: Offer<P>, epochs: &mut Epochs) -> Option<Refused> {
        if self.epoch == Epoch::NONE {
            return Some(self.refuse(offer.id, epochs));
        }
        if offer.epoch != self.epoch {
            // Made before the receiver heard of the last refusal, which is of an older offer; or in a former life of
            // the context.
            return None;
        }
        if offer.after != self.unplaced || self.offers.len() >= MOST {
            return Some(self.refuse(offer.id, epochs));
        }
        self.offers.push_back(offer);
        None
    }

    /// Does not accept an offer that came, for whatever reason. What is returned is to be said.
    #[must_use]
    pub fn refuse(&mut self, id: OfferId, epochs: &mut Epochs) -> Refused {
        let refused = refusal(id, epochs);
        (self.epoch, self.unplaced) = (refused.epoch, 0);
        refused
    }

    /// An offer is withdrawn. Whether that is to be answered; else its message is on its way, or its refusal.
    #[must_use]
    pub fn withdraw(&mut self, id: OfferId) -> bool {
        let at = self.offers.iter().position(|offer| offer.id == id);
        at.is_some_and(|at| self.offers.remove(at).is_some())
    }

    /// A message goes now, before whatever goes later. `is_written`: whether it can be written to this place.
    pub fn send(&mut self, tag: i32, is_written: impl FnOnce(&P) -> bool) -> Going<P> {
        let oldest = self.offers.iter().position(|offer| offer.tag == tag);
        if let Some(offer) = oldest.and_then(|at| self.offers.remove(at))
            && is_written(&offer.place)
        {
            return Going::Placed(offer.id, offer.place);
        }
        let is_counted = self.epoch != Epoch::NONE;
        if is_counted {
            self.unplaced = self.unplaced.wrapping_add(1);
        }
        Going::Unplaced { is_counted }
    }

    /// Stops counting, so that messages need not come by here. False: places wait for messages.
    #[must_use]
    pub fn stop(&mut self) -> bool {
        if self.offers.is_empty() {
            self.void();
        }
        self.epoch == Epoch::NONE
    }

    /// The connection has gone, and with it all offers.
    pub fn void(&mut self) {
        *self = Accepted::default();
    }
}
