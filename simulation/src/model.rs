// SPDX-License-Identifier: MIT OR Apache-2.0
//! A model of matching, by the rules that MPI and libfabric have in common: which receive may take which message. It
//! contains no algorithm of ibex.
//!
//! A test notes its history: the messages in the order in which each process sends them, and the *wishes* (receives and
//! probes) in the order in which they are made. When nothing is in flight any more, [`Model::matches`] works out which
//! message each wish got, and panics if the rules do not permit it (MPI 4.1, section 3.5; `fi_tagged(3)`, `fi_msg(3)`,
//! and `FI_ORDER_SAS` of `fi_endpoint(3)`):
//! - a wish gets a message that matches it, whole or cut to its buffer, and each message is taken once;
//! - no message overtakes another: a wish gets the sender's first matching message that no earlier wish took;
//! - no receive waits while a message matches it, or while a later receive took such a message;
//! - a synchronous send does not finish before a wish for its message is made.
//!
//! Any order of messages from two senders is permitted. A wish's status does not distinguish messages with the same
//! sender, communicator and tag. The model assumes that the wish got the first of them; the caller checks the bytes.
//! Called by `world` and `libfabric`, and by the histories of the PML (`plugin-abi/src/pml/tests`). Grade: test.
//! Threads: plain data. Tests: below.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::hash::Hash;

/// A tag of messages.
pub trait Tag: Copy + Eq + Hash + Debug {
    /// The tags that a wish takes.
    type Wanted: Copy + Debug;

    /// Whether a wish takes this tag.
    fn is_in(self, wanted: Self::Wanted) -> bool;
}

/// MPI's tags.
impl Tag for i32 {
    /// `None`: any tag that is not negative.
    type Wanted = Option<i32>;

    fn is_in(self, wanted: Option<i32>) -> bool {
        wanted.map_or(self >= 0, |tag| tag == self)
    }
}

/// A message.
#[derive(Debug)]
pub struct Sent<T = i32> {
    /// The sender.
    pub from: usize,
    /// The receiver.
    pub to: usize,
    /// Number of the communicator, in which each process has its own number as rank; or of libfabric's queue.
    pub comm: usize,
    /// The tag.
    pub tag: T,
    /// Number of bytes.
    pub length: usize,
    /// Whether the send waits for its match.
    pub is_synchronous: bool,
    /// Number of the step after which the send was finished.
    pub done: Option<usize>,
}

/// A receive or a probe.
#[derive(Debug)]
pub struct Wish<T: Tag = i32> {
    /// The process.
    pub at: usize,
    /// Number of the communicator.
    pub comm: usize,
    /// Rank of the sender; `None`: any.
    pub from: Option<usize>,
    /// The tags that it takes.
    pub tag: T::Wanted,
    /// Number of the step that made it.
    pub made: usize,
    /// True for a receive or a matched probe.
    pub takes: bool,
    /// What it got.
    pub got: Got<T>,
}

/// Result of a wish, from its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Got<T = i32> {
    /// The wish waits.
    Nothing,
    /// The wish was cancelled.
    Cancelled,
    /// The wish got a message of this length, bytes.
    Message {
        /// The sender.
        source: usize,
        /// The tag.
        tag: T,
        /// Number of bytes.
        length: usize,
    },
}

/// A history of messages and wishes.
#[derive(Debug)]
pub struct Model<T: Tag = i32> {
    /// The messages, those of one sender in order.
    pub sent: Vec<Sent<T>>,
    /// The wishes, those of one process in order.
    pub wishes: Vec<Wish<T>>,
    /// Processes that have died: their wishes do not matter any more, and their messages may be lost.
    pub gone: Vec<usize>,
    /// Pairs of processes, each in both orders, that have lost each other: messages between them may be lost.
    pub lost: BTreeSet<(usize, usize)>,
}

/// Who got what.
#[derive(Debug)]
pub struct Matches {
    /// Index of the message that each wish got.
    pub of_wishes: Vec<Option<usize>>,
    /// Index of the wish that took each message.
    pub takers: Vec<Option<usize>>,
}

impl<T: Tag> Default for Model<T> {
    fn default() -> Self {
        Model { sent: Vec::new(), wishes: Vec::new(), gone: Vec::new(), lost: BTreeSet::new() }
    }
}

impl<T: Tag> Wish<T> {
    fn is_for(&self, message: &Sent<T>) -> bool {
        let is_of_sender = self.from.is_none_or(|from| from == message.from);
        self.at == message.to && self.comm == message.comm && is_of_sender && message.tag.is_in(self.tag)
    }
}

impl<T: Tag> Model<T> {
    /// Whether a message of one process to another may be lost.
    pub fn may_lose(&self, from: usize, to: usize) -> bool {
        self.gone.contains(&from) || self.gone.contains(&to) || self.lost.contains(&(from, to))
    }

    /// Works out which wish got which message.
    ///
    /// # Panics
    /// If the rules do not permit it.
    pub fn matches(&self) -> Matches {
        let matches = self.assigned();
        for (index, (wish, got)) in self.wishes.iter().zip(&matches.of_wishes).enumerate() {
            if self.gone.contains(&wish.at) {
                continue;
            }
            let is_before = |message: usize| matches.takers[message].is_some_and(|taker| taker < index);
            let wanted = self.sent.iter().enumerate().filter(|(_, message)| wish.is_for(message));
            let wanted = wanted.filter(|(_, message)| !self.may_lose(message.from, message.to));
            for (earlier, message) in wanted {
                match *got {
                    Some(got) if self.sent[got].from == message.from && earlier < got => {
                        assert!(is_before(earlier), "message {got} overtakes {earlier}, which wish {index} is for");
                    }
                    None if wish.got == Got::Nothing => {
                        assert!(is_before(earlier), "wish {index} waits, and message {earlier} is for it");
                    }
                    _ => {}
                }
            }
        }
        for (index, message) in self.sent.iter().enumerate().filter(|(_, message)| message.is_synchronous) {
            let Some(done) = message.done else { continue };
            let taker = matches.takers[index].map(|taker| &self.wishes[taker]);
            assert!(taker.is_some_and(|taker| taker.made <= done), "send {index} is done, and nobody wished for it");
        }
        matches
    }

    fn assigned(&self) -> Matches {
        let mut classes: HashMap<_, Vec<usize>> = HashMap::new();
        for (index, message) in self.sent.iter().enumerate().rev() {
            classes.entry((message.to, message.comm, message.from, message.tag)).or_default().push(index);
        }
        let mut takers = vec![None; self.sent.len()];
        let mut of_wishes = vec![None; self.wishes.len()];
        for (index, wish) in self.wishes.iter().enumerate() {
            let Got::Message { source, tag, length } = wish.got else { continue };
            let class = classes.get_mut(&(wish.at, wish.comm, source, tag));
            let next = class.as_ref().and_then(|class| class.last().copied());
            let (Some(class), Some(message)) = (class, next) else {
                panic!("wish {index} has got a message that nobody has sent, or another has taken: {wish:?}");
            };
            let sent = &self.sent[message];
            assert!(wish.is_for(sent), "wish {index} is not for {message}: {wish:?}, {sent:?}");
            assert_eq!(sent.length, length, "the length that the status of wish {index} says, of message {message}");
            of_wishes[index] = Some(message);
            if wish.takes {
                takers[message] = Some(index);
                class.pop();
            }
        }
        Matches { of_wishes, takers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    const fn sent(from: usize, tag: i32) -> Sent {
        Sent { from, to: 0, comm: 0, tag, length: 8, is_synchronous: false, done: None }
    }

    const fn wish(from: Option<usize>, tag: Option<i32>, got: Option<(usize, i32)>) -> Wish {
        let got = match got {
            Some((source, tag)) => Got::Message { source, tag, length: 8 },
            None => Got::Nothing,
        };
        Wish { at: 0, comm: 0, from, tag, made: 0, takes: true, got }
    }

    fn is_permitted(sent: Vec<Sent>, wishes: Vec<Wish>) -> bool {
        catch_unwind(|| Model { sent, wishes, ..Model::default() }.matches()).is_ok()
    }

    #[test]
    fn the_model_permits_the_matches_that_mpi_permits_and_no_others() {
        let two = || vec![sent(1, 5), sent(1, 6)];
        assert!(is_permitted(two(), vec![wish(None, None, Some((1, 5))), wish(None, None, Some((1, 6)))]));
        assert!(is_permitted(two(), vec![wish(None, Some(6), Some((1, 6)))]));
        assert!(!is_permitted(two(), vec![wish(None, None, Some((1, 6)))]), "it overtakes");
        assert!(!is_permitted(two(), vec![wish(None, None, Some((1, 6))), wish(None, None, Some((1, 5)))]));
        assert!(!is_permitted(two(), vec![wish(None, None, None)]), "it waits for ever");
        assert!(is_permitted(two(), vec![wish(Some(2), None, None), wish(None, Some(7), None)]));
        assert!(!is_permitted(two(), vec![wish(None, Some(5), None), wish(None, Some(5), Some((1, 5)))]));
        assert!(!is_permitted(two(), vec![wish(None, Some(5), Some((1, 5))), wish(None, Some(5), Some((1, 5)))]));
        // Messages of two senders, in either order.
        let others = || vec![sent(1, 5), sent(2, 5)];
        for (first, second) in [(1, 2), (2, 1)] {
            let wishes = vec![wish(None, None, Some((first, 5))), wish(None, None, Some((second, 5)))];
            assert!(is_permitted(others(), wishes));
        }
        let synchronous = |done| vec![Sent { is_synchronous: true, done, ..sent(1, 5) }];
        let late = || vec![Wish { made: 3, ..wish(None, None, Some((1, 5))) }];
        assert!(is_permitted(synchronous(Some(3)), late()));
        assert!(!is_permitted(synchronous(Some(2)), late()) && !is_permitted(synchronous(Some(2)), vec![]));
    }
}
