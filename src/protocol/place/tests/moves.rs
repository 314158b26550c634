// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can happen in a world, one move at a time; and what happens then.

use super::world::{ANY, LeftOut, Message, Outcome, Place, Receive, ToReceiver, ToSender, World, check};
use crate::protocol::place::{Accepted, Epoch, Offer, OfferId, Offered, Outstanding, Refused, refusal};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Move {
    Post {
        source: i32,
        tag: i32,
        room: u8,
        /// If the receiver finds that it may be.
        is_offered: bool,
    },
    /// The receive at this place among those posted.
    Offer(usize),
    Cancel(usize),
    /// The receiver deals with what comes next from a sender.
    Take(usize),
    Land {
        pair: usize,
        at: usize,
    },
    Send {
        pair: usize,
        tag: i32,
        length: u8,
        is_written: bool,
    },
    /// A message of the sender to which nothing is offered.
    Other {
        tag: i32,
    },
    /// A sender deals with what comes next.
    Answer(usize),
    Refuse(usize),
    Stop(usize),
    /// The connection is lost, with all that comes from the sender from this place on.
    Lose {
        pair: usize,
        from: usize,
    },
    /// The sender frees the communicator; the receiver frees it and has a new one of its context; the sender as well.
    Free(usize),
    Renew(usize),
    Create(usize),
}

/// What is tried.
#[derive(Debug, Clone)]
pub(super) struct Choices {
    /// Source and tag of receives.
    pub(super) patterns: Vec<(i32, i32)>,
    pub(super) tags: Vec<i32>,
    pub(super) rooms: Vec<u8>,
    pub(super) lengths: Vec<u8>,
    /// Receives, messages in a wire and unexpected ones at a time.
    pub(super) most: usize,
    /// Writes land in the order in which they were sent.
    pub(super) in_order: bool,
}

impl World {
    /// All that can happen now.
    pub(super) fn moves(&self, choices: &Choices) -> Vec<Move> {
        let mut moves = Vec::new();
        self.moves_of_receiver(choices, &mut moves);
        for pair in 0..self.pairs.len() {
            self.moves_of_wire(pair, choices, &mut moves);
            self.moves_of_sender(pair, choices, &mut moves);
        }
        if self.budget.others > 0 && self.unexpected.len() < choices.most {
            moves.extend(choices.tags.iter().map(|tag| Move::Other { tag: *tag }));
        }
        moves
    }

    fn moves_of_receiver(&self, choices: &Choices, moves: &mut Vec<Move>) {
        if self.budget.posts > 0 && self.posted.len() < choices.most {
            for &(source, tag) in &choices.patterns {
                for &room in &choices.rooms {
                    moves.push(Move::Post { source, tag, room, is_offered: false });
                    if self.offers_at_once && self.budget.offers > 0 && source != ANY && tag != ANY {
                        moves.push(Move::Post { source, tag, room, is_offered: true });
                    }
                }
            }
        }
        for (at, receive) in self.posted.iter().enumerate() {
            if self.budget.offers > 0 && !self.offers_at_once && self.may_be_offered(at) {
                moves.push(Move::Offer(at));
            }
            if self.budget.cancels > 0 && !receive.is_cancelled {
                moves.push(Move::Cancel(at));
            }
        }
    }

    /// Rule W.
    fn may_be_offered(&self, at: usize) -> bool {
        let receive = &self.posted[at];
        if !receive.is_exact() || receive.offer.is_some() || receive.is_cancelled {
            return false;
        }
        let (source, tag) = (receive.source as usize, receive.tag);
        let holds_back = |before: &Receive| {
            let left_out = if before.is_exact() { LeftOut::NotOffered } else { LeftOut::Wildcards };
            before.takes(source, tag) && before.offer.is_none() && self.left_out != left_out
        };
        source < self.pairs.len() && !self.posted[..at].iter().any(holds_back)
    }

    /// Whether nothing is left of the communicator at the receiver, nor on its way there.
    fn may_renew(&self, pair: usize) -> bool {
        let is_message = |item: &ToReceiver| matches!(item, ToReceiver::Unplaced { .. } | ToReceiver::Placed { .. });
        let wire = &self.pairs[pair].to_receiver;
        self.posted.is_empty() && self.unexpected.is_empty() && !wire.iter().any(is_message)
    }

    fn moves_of_wire(&self, pair: usize, choices: &Choices, moves: &mut Vec<Move>) {
        let wire = &self.pairs[pair].to_receiver;
        let waits = |item: &ToReceiver| matches!(item, ToReceiver::Placed { has_landed: false, .. });
        if wire.front().is_some_and(|item| !waits(item)) {
            moves.push(Move::Take(pair));
        }
        let flying = (0..wire.len()).filter(|at| waits(&wire[*at]));
        moves.extend(flying.take(if choices.in_order { 1 } else { usize::MAX }).map(|at| Move::Land { pair, at }));
        if self.budget.losses > 0 && choices.in_order {
            let landed = wire.iter().rposition(|item| matches!(item, ToReceiver::Placed { has_landed: true, .. }));
            let first = landed.map_or(0, |at| at + 1);
            moves.extend((first..=wire.len()).map(|from| Move::Lose { pair, from }));
        }
    }

    fn moves_of_sender(&self, pair: usize, choices: &Choices, moves: &mut Vec<Move>) {
        let one = &self.pairs[pair];
        if !one.to_sender.is_empty() {
            moves.push(Move::Answer(pair));
        }
        let Some(accepted) = &one.accepted else {
            if one.is_renewed {
                moves.push(Move::Create(pair));
            } else if self.may_renew(pair) {
                moves.push(Move::Renew(pair));
            }
            return;
        };
        if self.budget.sends > 0 && one.to_receiver.len() < choices.most && self.unexpected.len() < choices.most {
            for &tag in &choices.tags {
                let is_offered = accepted.offers.iter().any(|offer| offer.tag == tag);
                for &length in &choices.lengths {
                    moves.push(Move::Send { pair, tag, length, is_written: false });
                    if is_offered {
                        moves.push(Move::Send { pair, tag, length, is_written: true });
                    }
                }
            }
        }
        if self.budget.refusals > 0 && matches!(one.to_sender.front(), Some(ToSender::Offer(_))) {
            moves.push(Move::Refuse(pair));
        }
        if self.budget.stops > 0 && accepted.epoch != Epoch::NONE && accepted.offers.is_empty() {
            moves.push(Move::Stop(pair));
        }
        if self.budget.lives > 0 {
            moves.push(Move::Free(pair));
        }
    }

    /// Makes a move.
    pub(super) fn step(&mut self, step: Move) -> Outcome {
        match step {
            Move::Post { source, tag, room, is_offered } => self.post(source, tag, room, is_offered)?,
            Move::Offer(at) => self.offer(at),
            Move::Cancel(at) => self.cancel(at)?,
            Move::Take(pair) => self.take(pair)?,
            Move::Land { pair, at } => self.land(pair, at)?,
            Move::Send { pair, tag, length, is_written } => {
                self.budget.sends -= 1;
                self.send(pair, tag, length, is_written);
            }
            Move::Other { tag } => {
                self.budget.others -= 1;
                let message = Message { number: self.number(), source: self.pairs.len(), tag, length: 1 };
                self.arrive(message)?;
            }
            Move::Answer(pair) => self.answer(pair, false),
            Move::Refuse(pair) => {
                self.budget.refusals -= 1;
                self.answer(pair, true);
            }
            Move::Stop(pair) => {
                self.budget.stops -= 1;
                let stopped = self.pairs[pair].accepted.as_mut().is_some_and(Accepted::stop);
                check(stopped, || "a sender without places counts on".to_owned())?;
            }
            Move::Lose { pair, from } => self.lose(pair, from)?,
            Move::Free(pair) => {
                self.budget.lives -= 1;
                self.pairs[pair].accepted = None;
            }
            Move::Renew(pair) => {
                self.pairs[pair].offered = Offered::default();
                self.pairs[pair].is_renewed = true;
            }
            Move::Create(pair) => {
                self.pairs[pair].accepted = Some(Accepted::default());
                self.pairs[pair].is_renewed = false;
            }
        }
        self.check_at_rest()
    }

    fn post(&mut self, source: i32, tag: i32, room: u8, is_offered: bool) -> Outcome {
        self.budget.posts -= 1;
        let number = self.number();
        let receive = Receive { number, source, tag, room, offer: None, written: None, is_cancelled: false };
        let first = self.unexpected.iter().position(|message| receive.takes(message.source, message.tag));
        if let Some(at) = first {
            self.unexpected.remove(at);
            return Ok(());
        }
        self.posted.push(receive);
        let at = self.posted.len() - 1;
        if is_offered && self.pairs[source as usize].offered.may_offer(tag, self.is_first(at)) {
            check(self.may_be_offered(at), || "a receive before it was not offered".to_owned())?;
            self.offer(at);
            return Ok(());
        }
        for (of, pair) in self.pairs.iter_mut().enumerate() {
            if (source == ANY || source == of as i32) && self.left_out != LeftOut::HeldBack {
                pair.offered.hold_back((tag != ANY).then_some(tag));
            }
        }
        Ok(())
    }

    /// Whether no receive before this one could take a message that it takes.
    fn is_first(&self, at: usize) -> bool {
        let Receive { source, tag, .. } = self.posted[at];
        !self.posted[..at].iter().any(|before| before.takes(source as usize, tag))
    }

    fn offer(&mut self, at: usize) {
        self.budget.offers -= 1;
        let is_first = self.is_first(at);
        let receive = &mut self.posted[at];
        let pair = &mut self.pairs[receive.source as usize];
        let place = Place { receive: receive.number, room: receive.room };
        if let Some(offer) = pair.offered.offer(receive.tag, is_first, place, receive.number, &mut self.ids) {
            receive.offer = Some(offer.id);
            pair.to_sender.push_back(ToSender::Offer(offer));
        }
    }

    /// Offers what was refused again, in order, as far as may be.
    fn offer_again(&mut self, pair: usize, void: impl IntoIterator<Item = Outstanding<u32>>) -> Outcome {
        for void in void {
            let Some(at) = self.posted.iter().position(|receive| receive.number == void.request) else { continue };
            if self.budget.offers == 0 {
                break;
            }
            self.budget.offers -= 1;
            check(self.may_be_offered(at), || "a receive before it was not offered again".to_owned())?;
            let receive = &mut self.posted[at];
            let place = Place { receive: receive.number, room: receive.room };
            let pair = &mut self.pairs[pair];
            let Some(offer) = pair.offered.offer_again(void, place, &mut self.ids) else { break };
            receive.offer = Some(offer.id);
            pair.to_sender.push_back(ToSender::Offer(offer));
        }
        Ok(())
    }

    fn cancel(&mut self, at: usize) -> Outcome {
        self.budget.cancels -= 1;
        let receive = &mut self.posted[at];
        let (number, source) = (receive.number, receive.source);
        let Some(id) = receive.offer else { return self.end_cancelled(number) };
        receive.is_cancelled = true;
        let pair = &mut self.pairs[source as usize];
        if pair.offered.withdraw(id) {
            pair.to_sender.push_back(ToSender::Withdraw(id));
        }
        if self.left_out == LeftOut::Answer {
            pair.offered.end(id);
            return self.end_cancelled(number);
        }
        Ok(())
    }

    fn take(&mut self, pair: usize) -> Outcome {
        match self.pairs[pair].to_receiver.pop_front() {
            Some(ToReceiver::Unplaced { message, is_counted }) => {
                if is_counted {
                    self.pairs[pair].offered.count();
                }
                self.arrive(message)
            }
            Some(ToReceiver::Placed { message, id, place, .. }) => self.arrive_placed(message, id, place),
            Some(ToReceiver::Refused(refused)) => self.refused(pair, refused),
            Some(ToReceiver::Withdrawn(id)) => {
                let ended = self.pairs[pair].offered.end(id);
                self.end_offers(ended)
            }
            None => Ok(()),
        }
    }

    fn refused(&mut self, pair: usize, refused: Refused) -> Outcome {
        self.seen.refused += 1;
        let offered = &mut self.pairs[pair].offered;
        let before = offered.clone();
        let mut void = offered.refused(refused);
        if self.left_out == LeftOut::LaterOnes {
            let rest = void.iter().filter(|offer| offer.id != refused.id);
            offered.outstanding.extend(rest);
            void.retain(|offer| offer.id == refused.id);
        }
        if self.left_out == LeftOut::Reset {
            offered.unplaced = before.unplaced;
        }
        self.end_offers(void.iter().copied())?;
        if self.offers_at_once { self.offer_again(pair, void) } else { Ok(()) }
    }

    fn answer(&mut self, pair: usize, refuses: bool) {
        let left_out = self.left_out;
        let pair = &mut self.pairs[pair];
        let answer = match (pair.to_sender.pop_front(), &mut pair.accepted) {
            (Some(ToSender::Offer(offer)), Some(accepted)) => {
                let offer = changed(offer, accepted, left_out);
                if refuses {
                    Some(ToReceiver::Refused(accepted.refuse(offer.id, &mut pair.epochs)))
                } else {
                    accepted.offered(offer, &mut pair.epochs).map(ToReceiver::Refused)
                }
            }
            (Some(ToSender::Offer(offer)), None) => {
                (left_out != LeftOut::Unknown).then(|| ToReceiver::Refused(refusal(offer.id, &mut pair.epochs)))
            }
            (Some(ToSender::Withdraw(id)), accepted) => {
                let is_answered = accepted.as_mut().is_none_or(|accepted| accepted.withdraw(id));
                is_answered.then_some(ToReceiver::Withdrawn(id))
            }
            (None, _) => None,
        };
        pair.to_receiver.extend(answer);
    }

    fn lose(&mut self, pair: usize, from: usize) -> Outcome {
        self.budget.losses -= 1;
        // What the adapter has is dealt with before the connection is made anew.
        for at in 0..from {
            self.land(pair, at)?;
        }
        for _ in 0..from {
            self.take(pair)?;
        }
        let one = &mut self.pairs[pair];
        one.to_sender.clear();
        for item in std::mem::take(&mut one.to_receiver) {
            if let ToReceiver::Unplaced { message, .. } | ToReceiver::Placed { message, .. } = item {
                self.seen.sent_again += u64::from(matches!(item, ToReceiver::Placed { .. }));
                one.to_receiver.push_back(ToReceiver::Unplaced { message, is_counted: false });
            }
        }
        if self.left_out != LeftOut::Void
            && let Some(accepted) = &mut one.accepted
        {
            accepted.void();
        }
        let void = one.offered.void();
        self.end_offers(void)
    }
}

/// An offer as a sender takes it that leaves a rule out.
fn changed(offer: Offer<Place>, accepted: &Accepted<Place>, left_out: LeftOut) -> Offer<Place> {
    match left_out {
        LeftOut::Count => Offer { after: accepted.unplaced, ..offer },
        LeftOut::Epoch => Offer { epoch: accepted.epoch, ..offer },
        _ => offer,
    }
}

/// The receives that a program with these tags may post: exact ones of each sender, and wildcards.
pub(super) fn patterns(senders: i32, tags: &[i32]) -> Vec<(i32, i32)> {
    let sources = (0..senders).chain([ANY]);
    sources.flat_map(|source| tags.iter().copied().chain([ANY]).map(move |tag| (source, tag))).collect()
}

/// The id as the number that it is.
pub(super) fn id_of(item: &ToReceiver) -> Option<OfferId> {
    match item {
        ToReceiver::Placed { id, .. } | ToReceiver::Withdrawn(id) => Some(*id),
        ToReceiver::Refused(refused) => Some(refused.id),
        ToReceiver::Unplaced { .. } => None,
    }
}
