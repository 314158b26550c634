// SPDX-License-Identifier: MIT OR Apache-2.0
//! One receiver, its senders, and the wires between: what there is, and what must hold. What can happen is in
//! `moves.rs`.
//!
//! The receiver matches by two lists. Each message is held against them when it is dealt with: a written one must find
//! there that its receive is the first that takes it. Memory is a mark at each receive, made when a write lands.

use std::collections::VecDeque;

use crate::protocol::place::{Accepted, Epoch, Epochs, Going, Offer, OfferId, OfferIds, Offered, Outstanding, Refused};

/// In place of a source or a tag.
pub(super) const ANY: i32 = -1;

/// What an offer names: the receive, whose memory it is, and how long it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) receive: u32,
    pub(super) room: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) number: u32,
    pub(super) source: usize,
    pub(super) tag: i32,
    pub(super) length: u8,
}

/// A posted receive.
#[derive(Debug, Clone)]
pub(super) struct Receive {
    pub(super) number: u32,
    pub(super) source: i32,
    pub(super) tag: i32,
    pub(super) room: u8,
    /// Its offer that is outstanding.
    pub(super) offer: Option<OfferId>,
    /// The message whose write has landed.
    pub(super) written: Option<u32>,
    /// It is to be cancelled.
    pub(super) is_cancelled: bool,
}

impl Receive {
    pub(super) fn takes(&self, source: usize, tag: i32) -> bool {
        (self.source == ANY || self.source == source as i32) && (self.tag == ANY || self.tag == tag)
    }

    pub(super) fn is_exact(&self) -> bool {
        self.source != ANY && self.tag != ANY
    }
}

/// What is on its way from a sender.
#[derive(Debug, Clone)]
pub(super) enum ToReceiver {
    Unplaced { message: Message, is_counted: bool },
    Placed { message: Message, id: OfferId, place: Place, has_landed: bool },
    Refused(Refused),
    Withdrawn(OfferId),
}

/// What is on its way to a sender.
#[derive(Debug, Clone)]
pub(super) enum ToSender {
    Offer(Offer<Place>),
    Withdraw(OfferId),
}

/// A sender, and what the receiver has of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Pair {
    /// None: the sender has freed the communicator.
    pub(super) accepted: Option<Accepted<Place>>,
    pub(super) offered: Offered<u32>,
    /// The receiver has freed the communicator since the sender did, and has a new one.
    pub(super) is_renewed: bool,
    pub(super) to_receiver: VecDeque<ToReceiver>,
    pub(super) to_sender: VecDeque<ToSender>,
    pub(super) epochs: Epochs,
}

/// How often things may happen yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    pub(super) posts: u16,
    pub(super) sends: u16,
    /// Messages of a sender to which nothing is offered: they arrive at once.
    pub(super) others: u16,
    pub(super) offers: u16,
    pub(super) cancels: u16,
    /// A sender refuses what it could accept.
    pub(super) refusals: u16,
    /// A sender stops counting.
    pub(super) stops: u16,
    /// A connection is lost.
    pub(super) losses: u16,
    /// The communicator is freed, and its context used again.
    pub(super) lives: u16,
}

impl Budget {
    pub(super) const NONE: Budget =
        Budget { posts: 0, sends: 0, others: 0, offers: 0, cancels: 0, refusals: 0, stops: 0, losses: 0, lives: 0 };
}

/// A rule that is left out, to see that it is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeftOut {
    Nothing,
    /// W, of wildcards.
    Wildcards,
    /// W, of receives that were not offered.
    NotOffered,
    /// W, by the receiver's machine.
    HeldBack,
    /// N.
    Count,
    /// E: an offer of an old epoch is accepted.
    Epoch,
    /// E: only the refused offer itself is void.
    LaterOnes,
    /// E: the receiver goes on counting.
    Reset,
    /// F: an offer is used up by a message that is not written.
    UsedUp,
    /// F: the oldest of its tag.
    Oldest,
    /// C.
    Answer,
    /// An offer in a communicator that there is not is refused.
    Unknown,
    /// A sender voids its offers with the connection.
    Void,
}

/// What has happened, so that nobody explores a world in which nothing does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) placed: u64,
    pub(super) refused: u64,
    pub(super) used_up: u64,
    pub(super) cancelled: u64,
    pub(super) received_instead: u64,
    pub(super) sent_again: u64,
}

impl Seen {
    pub(super) fn add(&mut self, other: Seen) {
        self.placed += other.placed;
        self.refused += other.refused;
        self.used_up += other.used_up;
        self.cancelled += other.cancelled;
        self.received_instead += other.received_instead;
        self.sent_again += other.sent_again;
    }
}

/// The world.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) pairs: Vec<Pair>,
    pub(super) posted: Vec<Receive>,
    pub(super) unexpected: Vec<Message>,
    pub(super) ids: OfferIds,
    pub(super) numbers: u32,
    pub(super) budget: Budget,
    pub(super) left_out: LeftOut,
    /// Receives are offered when they are posted, or when they were refused, by what the receiver's machine knows of
    /// others. Else at any time at which the rules permit it.
    pub(super) offers_at_once: bool,
    /// Both sides are compared where nothing is under way; else only what is received counts, and what is written.
    pub(super) is_compared: bool,
    pub(super) seen: Seen,
}

/// What must not happen.
pub(super) type Outcome = Result<(), String>;

pub(super) fn check(holds: bool, what: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(what()) }
}

impl World {
    pub(super) fn new(senders: usize, budget: Budget, left_out: LeftOut) -> Self {
        let pair = Pair { accepted: Some(Accepted::default()), ..Pair::default() };
        World {
            pairs: vec![pair; senders],
            posted: Vec::new(),
            unexpected: Vec::new(),
            ids: OfferIds::default(),
            numbers: 0,
            budget,
            left_out,
            offers_at_once: false,
            is_compared: true,
            seen: Seen::default(),
        }
    }

    /// Each sender has refused an offer, and the receiver has heard.
    pub(super) fn begin_counting(&mut self) {
        for Pair { accepted, offered, epochs, .. } in &mut self.pairs {
            let refused = accepted.as_mut().map(|accepted| accepted.refuse(self.ids.take(), epochs));
            let void = refused.map(|refused| offered.refused(refused));
            assert!(void.is_some_and(|void| void.is_empty()));
        }
    }

    pub(super) fn number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers
    }

    /// An unplaced message is dealt with.
    pub(super) fn arrive(&mut self, message: Message) -> Outcome {
        let Some(at) = self.posted.iter().position(|receive| receive.takes(message.source, message.tag)) else {
            self.unexpected.push(message);
            return Ok(());
        };
        let receive = self.posted.remove(at);
        self.seen.received_instead += u64::from(receive.is_cancelled);
        if let Some(id) = receive.offer {
            let known = self.pairs[message.source].offered.end(id);
            check(known.is_some() || !self.is_compared, || format!("the offer of {receive:?} is not outstanding"))?;
        }
        check(receive.written.is_none(), || format!("{receive:?} gets {message:?}, and was written to"))
    }

    /// A written message is dealt with.
    pub(super) fn arrive_placed(&mut self, message: Message, id: OfferId, place: Place) -> Outcome {
        let known = self.pairs[message.source].offered.end(id);
        check(known.map(|offer| offer.request) == Some(place.receive), || format!("{id:?} is not outstanding"))?;
        let first = self.posted.iter().position(|receive| receive.takes(message.source, message.tag));
        let Some(at) = first else { return Err(format!("no receive takes {message:?}")) };
        let receive = self.posted.remove(at);
        let is_its = receive.number == place.receive && receive.written == Some(message.number);
        check(is_its && receive.offer == Some(id), || format!("{message:?} is of {receive:?}, and is at {place:?}"))?;
        self.seen.placed += 1;
        self.seen.received_instead += u64::from(receive.is_cancelled);
        check(message.length <= receive.room, || format!("{message:?} is too long for {receive:?}"))
    }

    /// A write reaches the memory of its place.
    pub(super) fn land(&mut self, pair: usize, at: usize) -> Outcome {
        let Some(ToReceiver::Placed { message, place, has_landed, .. }) = self.pairs[pair].to_receiver.get_mut(at)
        else {
            return Ok(());
        };
        if std::mem::replace(has_landed, true) {
            return Ok(());
        }
        let (message, place) = (*message, *place);
        let receive = self.posted.iter_mut().find(|receive| receive.number == place.receive);
        let Some(receive) = receive else { return Err(format!("{message:?} is written to {place:?}, which has gone")) };
        let before = receive.written.replace(message.number);
        check(before.is_none(), || format!("{place:?} is written to by {before:?} and {message:?}"))
    }

    /// A receive ends as cancelled.
    pub(super) fn end_cancelled(&mut self, number: u32) -> Outcome {
        let at = self.posted.iter().position(|receive| receive.number == number);
        let Some(at) = at else { return Err(format!("receive {number} ends twice")) };
        let receive = self.posted.remove(at);
        self.seen.cancelled += 1;
        check(receive.written.is_none(), || format!("{receive:?} is cancelled, and was written to"))
    }

    /// Offers are void: their receives are posted as ever, or cancelled.
    pub(super) fn end_offers(&mut self, ended: impl IntoIterator<Item = Outstanding<u32>>) -> Outcome {
        for Outstanding { id, request, is_withdrawn, .. } in ended {
            let receive = self.posted.iter_mut().find(|receive| receive.number == request);
            let Some(receive) = receive.filter(|receive| receive.offer == Some(id)) else {
                return Err(format!("{id:?} is outstanding, and its receive has gone"));
            };
            receive.offer = None;
            if is_withdrawn {
                self.end_cancelled(request)?;
            }
        }
        Ok(())
    }

    /// A sender's next message goes.
    pub(super) fn send(&mut self, source: usize, tag: i32, length: u8, is_written: bool) {
        let message = Message { number: self.number(), source, tag, length };
        let left_out = self.left_out;
        let pair = &mut self.pairs[source];
        let Some(accepted) = &mut pair.accepted else { return };
        if left_out == LeftOut::Oldest
            && let Some(last) = accepted.offers.iter().rposition(|offer| offer.tag == tag)
            && let Some(offer) = accepted.offers.remove(last)
        {
            accepted.offers.push_front(offer);
        }
        let oldest = accepted.offers.iter().find(|offer| offer.tag == tag).copied();
        match accepted.send(tag, |place| is_written && length <= place.room) {
            Going::Placed(id, place) => {
                pair.to_receiver.push_back(ToReceiver::Placed { message, id, place, has_landed: false });
            }
            Going::Unplaced { is_counted } => {
                self.seen.used_up += u64::from(oldest.is_some());
                if left_out == LeftOut::UsedUp
                    && let Some(offer) = oldest
                {
                    accepted.offers.push_front(offer);
                }
                pair.to_receiver.push_back(ToReceiver::Unplaced { message, is_counted });
            }
        }
    }

    /// What must hold where nothing is under way between a sender that has the communicator and the receiver.
    pub(super) fn check_at_rest(&self) -> Outcome {
        if !self.is_compared {
            return Ok(());
        }
        for (source, Pair { accepted, offered, to_receiver, to_sender, .. }) in self.pairs.iter().enumerate() {
            let Some(accepted) = accepted else { continue };
            if !to_receiver.is_empty() || !to_sender.is_empty() {
                continue;
            }
            let theirs = accepted.offers.iter().map(|offer| offer.id);
            let ours = offered.outstanding.iter().map(|offer| offer.id);
            check(theirs.eq(ours), || format!("{source} has accepted others than are outstanding"))?;
            let waiting = offered.outstanding.iter().any(|offer| offer.is_withdrawn);
            check(!waiting, || format!("a cancelled receive of {source} waits for ever"))?;
            let counts = (accepted.epoch, accepted.unplaced) == (offered.epoch, offered.unplaced);
            check(counts || accepted.epoch == Epoch::NONE, || format!("{source} has counted otherwise"))?;
        }
        let lost = self
            .unexpected
            .iter()
            .find(|message| self.posted.iter().any(|receive| receive.takes(message.source, message.tag)));
        check(lost.is_none(), || format!("{lost:?} is unexpected, and a receive for it is posted"))
    }
}
