// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shape of a world: two worlds with one shape go on alike. Numbers are replaced by their places in the order of
//! those that are there, as nothing depends on how many there have been.

use super::moves::id_of;
use super::world::{ANY, Message, Pair, Place, ToReceiver, ToSender, World};
use crate::protocol::place::{Epoch, Offer, OfferId};

struct Shape {
    bytes: Vec<u8>,
    ids: Vec<OfferId>,
    epochs: Vec<Epoch>,
    messages: Vec<u32>,
    receives: Vec<u32>,
    /// Tags are alike, but for `ANY`.
    tags: Vec<i32>,
}

/// The place of a number that is first seen now, or was before.
fn place<T: PartialEq>(of: &mut Vec<T>, what: T) -> u8 {
    let at = of.iter().position(|one| *one == what).unwrap_or_else(|| {
        of.push(what);
        of.len() - 1
    });
    at as u8
}

impl World {
    pub(super) fn shape(&self) -> Vec<u8> {
        let receives = self.posted.iter().map(|receive| receive.number).collect();
        let mut shape = Shape {
            bytes: Vec::with_capacity(128),
            ids: self.ids_there(),
            epochs: vec![Epoch::NONE],
            messages: Vec::new(),
            receives,
            tags: vec![ANY],
        };
        shape.length(self.posted.len());
        for receive in &self.posted {
            let offer = receive.offer.map_or(u8::MAX, |id| shape.id(id));
            let written = receive.written.map_or(u8::MAX, |message| place(&mut shape.messages, message));
            let (tag, is_cancelled) = (place(&mut shape.tags, receive.tag), u8::from(receive.is_cancelled));
            shape.put([receive.source as u8, tag, receive.room, is_cancelled, offer, written]);
        }
        shape.length(self.unexpected.len());
        for message in &self.unexpected {
            shape.message(*message);
        }
        for pair in &self.pairs {
            shape.pair(pair);
            if self.offers_at_once {
                shape.held_back(pair);
            }
        }
        let budget = self.budget;
        let left = [budget.posts, budget.sends, budget.others, budget.offers, budget.cancels];
        shape.put(left.map(|count| count as u8));
        shape.put([budget.refusals, budget.stops, budget.losses, budget.lives].map(|count| count as u8));
        shape.bytes
    }

    /// The offers that anything names, the oldest first.
    fn ids_there(&self) -> Vec<OfferId> {
        let mut ids: Vec<OfferId> = self.posted.iter().filter_map(|receive| receive.offer).collect();
        for pair in &self.pairs {
            ids.extend(pair.accepted.iter().flat_map(|accepted| accepted.offers.iter().map(|offer| offer.id)));
            ids.extend(pair.offered.outstanding.iter().map(|offer| offer.id));
            ids.extend(pair.to_receiver.iter().filter_map(id_of));
            ids.extend(pair.to_sender.iter().map(|asked| match asked {
                ToSender::Offer(offer) => offer.id,
                ToSender::Withdraw(id) => *id,
            }));
        }
        ids.sort_unstable_by_key(|id| id.0);
        ids.dedup();
        ids
    }
}

impl Shape {
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.bytes.extend_from_slice(&bytes);
    }

    /// Before what there may be any number of: so no two shapes have the same bytes.
    fn length(&mut self, length: usize) {
        self.put([length as u8]);
    }

    fn id(&mut self, id: OfferId) -> u8 {
        place(&mut self.ids, id)
    }

    fn message(&mut self, message: Message) {
        let (number, tag) = (place(&mut self.messages, message.number), place(&mut self.tags, message.tag));
        self.put([number, message.source as u8, tag, message.length]);
    }

    fn place(&mut self, place: Place) {
        let receive = self.receives.iter().position(|receive| *receive == place.receive);
        self.put([receive.map_or(u8::MAX, |at| at as u8), place.room]);
    }

    fn offer(&mut self, offer: &Offer<Place>) {
        let (id, epoch) = (self.id(offer.id), place(&mut self.epochs, offer.epoch));
        let tag = place(&mut self.tags, offer.tag);
        self.put([id, epoch, offer.after as u8, tag]);
        self.place(offer.place);
    }

    fn held_back(&mut self, pair: &Pair) {
        self.length(pair.offered.held_back.len());
        for (tag, times) in &pair.offered.held_back {
            let tag = place(&mut self.tags, *tag);
            self.put([tag, *times as u8]);
        }
    }

    fn pair(&mut self, pair: &Pair) {
        let epoch =
            pair.accepted.as_ref().map(|accepted| (place(&mut self.epochs, accepted.epoch), accepted.unplaced as u8));
        let (epoch, unplaced) = epoch.unwrap_or((u8::MAX, u8::from(pair.is_renewed)));
        self.put([epoch, unplaced]);
        self.length(pair.accepted.as_ref().map_or(0, |accepted| accepted.offers.len()));
        for offer in pair.accepted.iter().flat_map(|accepted| &accepted.offers) {
            self.offer(offer);
        }
        let epoch = place(&mut self.epochs, pair.offered.epoch);
        self.put([epoch, pair.offered.unplaced as u8]);
        self.length(pair.offered.outstanding.len());
        for offer in &pair.offered.outstanding {
            let id = self.id(offer.id);
            self.put([id, u8::from(offer.is_withdrawn)]);
        }
        self.length(pair.to_receiver.len());
        for item in &pair.to_receiver {
            self.under_way(item);
        }
        self.length(pair.to_sender.len());
        for asked in &pair.to_sender {
            match asked {
                ToSender::Offer(offer) => {
                    self.put([1]);
                    self.offer(offer);
                }
                ToSender::Withdraw(id) => {
                    let id = self.id(*id);
                    self.put([2, id]);
                }
            }
        }
    }

    fn under_way(&mut self, item: &ToReceiver) {
        match *item {
            ToReceiver::Unplaced { message, is_counted } => {
                self.put([1, u8::from(is_counted)]);
                self.message(message);
            }
            ToReceiver::Placed { message, id, place, has_landed } => {
                let id = self.id(id);
                self.put([2, id, u8::from(has_landed)]);
                self.message(message);
                self.place(place);
            }
            ToReceiver::Refused(refused) => {
                let (id, epoch) = (self.id(refused.id), place(&mut self.epochs, refused.epoch));
                self.put([3, id, epoch]);
            }
            ToReceiver::Withdrawn(id) => {
                let id = self.id(id);
                self.put([4, id]);
            }
        }
    }
}
