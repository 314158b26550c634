// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a program of libfabric: receives what no receive got, and checks that every message is right, every
//! operation has ended, the counters agree, and all that was taken is given back. Grade: test. Threads: one.

use std::collections::BTreeMap;

use super::endpoint::Endpoint;
use super::world::{Bytes, End, Got, Sent, What, Wish, World, laid_out};
use crate::model::{self, Model};
use crate::schedule::Scheduled;
use crate::world::content;

/// libfabric's tags: a wish names one, and the bits to ignore.
impl model::Tag for u64 {
    type Wanted = (u64, u64);

    fn is_in(self, (tag, ignore): (u64, u64)) -> bool {
        self & !ignore == tag & !ignore
    }
}

/// Messages that no wish tells apart by its status: their sender, receiver, queue and tag.
type Class = (usize, usize, usize, u64);

impl Wish {
    /// Returns what it got, in the order of the matches: that of the places in a buffer. Messages without data are at
    /// the place of the next one.
    fn in_order(&self) -> Vec<Got> {
        let mut got = self.got.clone();
        got.sort_by_key(|got| (got.offset, got.length > 0));
        got
    }

    /// Bytes of a buffer, or of a receive, up to the end of the last message.
    fn filled(&self) -> usize {
        self.got.iter().map(|got| (got.offset + got.length).min(self.room)).max().unwrap_or(0)
    }

    /// Whether each message is behind the one before.
    fn is_packed(&self) -> bool {
        let mut end = 0;
        self.in_order()
            .iter()
            .all(|got| got.offset == std::mem::replace(&mut end, (got.offset + got.length).min(self.room)))
    }

    fn takes(&self) -> bool {
        self.what != What::Search(super::Found::Stays)
    }

    /// Whether it takes a further message.
    fn goes_on(&self) -> bool {
        self.end == End::Waits
            && match self.what {
                What::Receive => true,
                What::Buffer(least) => self.room - self.filled() >= least.max(1),
                What::Search(_) => false,
            }
    }
}

impl World {
    /// Returns the history for the model of matching, in which a buffer is a wish for each message that it got, and one
    /// more while it waits; and the index here of each wish there, unless that is a receive of a skipped message.
    fn history(&self) -> (Model<u64>, Vec<Option<usize>>) {
        let sent = |sent: &Sent| model::Sent {
            from: sent.from,
            to: sent.to,
            comm: sent.kind as usize,
            tag: sent.tag,
            length: sent.length,
            // What a lost peer, or one that closes its endpoint, has matched is not reported.
            is_synchronous: sent.is_matched_when_done() && !self.may_lose(sent.from, sent.to),
            done: sent.done,
        };
        let mut history = Model { sent: self.sent.iter().map(sent).collect(), ..Model::default() };
        let (mut of_wishes, mut next) = (Vec::new(), BTreeMap::new());
        for (index, wish) in self.wishes.iter().enumerate() {
            let (at, comm, made, takes) = (wish.at, wish.kind as usize, wish.made, wish.takes());
            let in_order = wish.in_order();
            for got in &in_order {
                for message in self.skipped(&mut next, wish, got) {
                    let Sent { from, tag, length, .. } = self.sent[message];
                    let got = model::Got::Message { source: from, tag, length };
                    let (from, tag) = (Some(from), (tag, 0));
                    history.wishes.push(model::Wish { at, comm, from, tag, made, takes: true, got });
                    of_wishes.push(None);
                }
                let got = model::Got::Message { source: got.from, tag: got.tag, length: got.length };
                let (from, tag) = (wish.from, (wish.tag, wish.ignore));
                history.wishes.push(model::Wish { at, comm, from, tag, made, takes, got });
                of_wishes.push(Some(index));
            }
            if wish.goes_on() {
                let (from, tag, got) = (wish.from, (wish.tag, wish.ignore), model::Got::Nothing);
                history.wishes.push(model::Wish { at, comm, from, tag, made, takes, got });
                of_wishes.push(Some(index));
            }
        }
        history.gone = self.dead.union(&self.closed).copied().collect();
        history.lost.clone_from(&self.lost);
        (history, of_wishes)
    }

    /// Returns the messages before the one that a wish got which no wish has got: earlier receives had matched them, and
    /// failed because their peer is lost, or did not end before their own process did. No completion says which
    /// messages these are, but the length, the data and the bytes of what the wish got say which message that is.
    /// `next`: the first message of each class that wishes before this one have left.
    fn skipped(&self, next: &mut BTreeMap<Class, usize>, wish: &Wish, got: &Got) -> Vec<usize> {
        if !self.may_lose(got.from, wish.at) {
            return Vec::new();
        }
        let class = (got.from, wish.at, wish.kind as usize, got.tag);
        let first = next.get(&class).copied().unwrap_or(0);
        let is_of_class = |message: &usize| {
            let Sent { from, to, kind, tag, .. } = self.sent[*message];
            (from, to, kind as usize, tag) == class
        };
        let mut of_class: Vec<usize> = (first..self.sent.len()).filter(is_of_class).collect();
        let Some(place) = of_class.iter().position(|message| self.is_got(wish, got, *message)) else {
            return Vec::new();
        };
        next.insert(class, of_class[place] + usize::from(wish.takes()));
        of_class.truncate(place);
        of_class
    }

    /// Whether a wish may have got this message.
    fn is_got(&self, wish: &Wish, got: &Got, message: usize) -> bool {
        let sent = &self.sent[message];
        if (sent.length, sent.data) != (got.length, got.data) {
            return false;
        }
        let Some(Bytes(bytes)) =
            wish.bytes.as_ref().filter(|_| matches!(wish.what, What::Buffer(_)) || !wish.has_failed)
        else {
            return true;
        };
        let length = got.length.min(wish.room - got.offset);
        let content = &content(message, sent.length)[..length];
        match wish.what {
            What::Buffer(_) => bytes[got.offset..got.offset + length] == *content,
            _ => **bytes == *laid_out(content, wish.room, wish.pieces).0,
        }
    }

    pub(super) fn model(&self) -> Model<u64> {
        self.history().0
    }

    /// Receives every message, and checks that nothing is left.
    pub(super) fn end(&mut self) {
        self.schedule.failing = None;
        for at in 0..self.endpoints.len() {
            self.memory.refuse(at, false);
            self.schedule.fabric.refuse_slots(at, false);
            while self.is_open(at) && self.claim(at, None) {}
        }
        self.settle();
        self.check_closed();
        self.receive_rest();
        self.settle();
        self.check();
        self.endpoints.iter_mut().flatten().for_each(Endpoint::reclaim);
        self.settle();
        self.check_rest();
    }

    /// Whether a process lives, and has not closed its endpoint.
    fn is_open(&self, at: usize) -> bool {
        self.endpoints[at].is_some() && !self.closed.contains(&at)
    }

    /// Cancels every receive that waits, and posts one for each message that nobody got.
    fn receive_rest(&mut self) {
        let takers = self.model().matches().takers;
        for wish in 0..self.wishes.len() {
            let known = &self.wishes[wish];
            if known.end == End::Waits && self.is_open(known.at) {
                let is_cancelled = self.cancel(wish);
                assert!(is_cancelled, "receive {wish} has a message, and does not end: {:?}", self.wishes[wish]);
            }
        }
        for message in (0..takers.len()).filter(|message| takers[*message].is_none()) {
            let Sent { from, to, kind, tag, length, .. } = self.sent[message];
            if self.is_open(to) && !self.is_excused(message) {
                self.receive(to, Some(from), (kind, tag, 0), (length, 1));
                self.look(to);
            }
        }
    }

    /// Whether a message need not arrive: an end of it is lost. But the messages of an endpoint arrive that were
    /// complete before it was closed, unless others before them are lost.
    fn is_excused(&self, message: usize) -> bool {
        let sent = &self.sent[message];
        let is_gone = self.dead.contains(&sent.from) || self.closed.contains(&sent.to) || self.dead.contains(&sent.to);
        let has_left = self.closed.contains(&sent.from);
        let is_lost = self.lost.contains(&(sent.from, sent.to));
        let breaks = self.schedule.has_failed || !self.dead.is_empty() || self.gave_up.contains(&sent.from);
        let is_promised = |sent: &Sent| sent.done.is_some() || sent.is_injected;
        let before = self.sent[..=message].iter();
        let mut before = before.filter(|other| (other.from, other.to, other.kind) == (sent.from, sent.to, sent.kind));
        is_gone || has_left && (breaks || !before.all(is_promised)) || !has_left && is_lost
    }

    fn check(&mut self) {
        let (history, of_wishes) = self.history();
        let matches = history.matches();
        for (message, taker) in matches.takers.iter().enumerate() {
            let sent = &self.sent[message];
            assert!(taker.is_some() || self.is_excused(message), "message {message} is lost: {sent:?}");
        }
        for at in &self.gave_up {
            // An announced message arrives when it is received: not yet when a search has claimed it.
            let is_claim = |taker: usize| of_wishes[taker].is_some_and(|wish| self.wishes[wish].claim.is_some());
            let waits = |taker: Option<usize>| taker.is_none_or(is_claim);
            let mut sent = self.sent.iter().zip(&matches.takers);
            assert!(
                sent.any(|(sent, taker)| sent.from == *at && waits(*taker)),
                "process {at} waits for nobody to close"
            );
        }
        for (message, sent) in self.sent.iter().enumerate() {
            let is_over = sent.done.is_some() || sent.has_failed || !sent.is_reported;
            assert!(is_over || !self.is_open(sent.from), "send {message} does not end: {sent:?}");
        }
        let mut messages = vec![Vec::new(); self.wishes.len()];
        for (place, message) in matches.of_wishes.iter().enumerate() {
            if let Some(wish) = of_wishes[place] {
                messages[wish].extend(*message);
            }
        }
        for (index, wish) in self.wishes.iter().enumerate().filter(|(_, wish)| self.is_open(wish.at)) {
            self.check_wish(index, wish, &messages[index]);
        }
    }

    /// Checks a wish that got these messages.
    fn check_wish(&self, index: usize, wish: &Wish, messages: &[usize]) {
        let waits = wish.end == End::Waits || wish.claim == Some(End::Waits);
        assert!(!waits, "wish {index} does not end: {wish:?}");
        let mut expected = Vec::new();
        for (got, message) in wish.in_order().iter().zip(messages) {
            assert_eq!(got.data, self.sent[*message].data, "the remote CQ data of wish {index}, of message {message}");
            let length = got.length.min(wish.room.saturating_sub(expected.len()));
            expected.extend_from_slice(&content(*message, got.length)[..length]);
        }
        if let (What::Buffer(least), End::Done, false) = (wish.what, wish.end, wish.has_failed) {
            assert!(wish.is_packed(), "messages are packed into buffer {index}: {wish:?}");
            assert!(wish.room - wish.filled() < least.max(1), "buffer {index} was given back too early: {wish:?}");
        }
        let Some(Bytes(bytes)) = &wish.bytes else { return };
        if wish.has_failed {
            return;
        }
        let (expected, _) = laid_out(&expected, wish.room, wish.pieces);
        let differs = expected.iter().zip(&**bytes).position(|(expected, got)| expected != got);
        assert!(**bytes == *expected, "wish {index} has wrong bytes, the first at {differs:?}: {wish:?}, {messages:?}");
    }

    /// Checks that the counters agree, and that all that was taken is given back.
    fn check_rest(&self) {
        for (at, endpoint) in self.endpoints.iter().enumerate() {
            let Some(endpoint) = endpoint.as_ref().filter(|_| self.is_open(at)) else { continue };
            if self.program.counts {
                let expected = [self.sends_of(at), self.receives_of(at)];
                assert_eq!(endpoint.counts(), expected, "the counters of process {at}");
            }
            if let Some(left) = endpoint.left(self.is_whole()) {
                panic!("process {at} does not give back: {left}");
            }
        }
        let is_whole = self.dead.is_empty() && self.closed.is_empty();
        assert!(!is_whole || self.memory.registered() == 0, "registrations are left");
    }

    /// Returns how many sends of a process have succeeded and failed.
    fn sends_of(&self, at: usize) -> [usize; 2] {
        let mine = || self.sent.iter().filter(|sent| sent.from == at);
        let failed = mine().filter(|sent| sent.has_failed).count() + self.anonymous[at];
        [mine().count() - failed, failed]
    }

    /// Returns how many receives of a process have succeeded and failed. Searches do not count.
    fn receives_of(&self, at: usize) -> [usize; 2] {
        let mut counts = [0, 0];
        for wish in self.wishes.iter().filter(|wish| wish.at == at) {
            let [succeeded, failed] = wish.counted;
            counts = [counts[0] + succeeded, counts[1] + failed];
        }
        counts
    }
}
