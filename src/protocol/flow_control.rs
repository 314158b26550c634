// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow control: bounds the memory that messages take at a receiver which has posted no receive for them, and at their
//! sender.
//!
//! [`Kept`] is the receiver's side, one for a process: it adds up what is kept of unexpected messages, and says beyond
//! the bound that who sent a message is to be held back (`HoldBack`), and below half of it that all of those may go on
//! (`GoOn`). [`Outgoing`] is the sender's side: what becomes of each message ([`Way`]). Nobody counts credits: a
//! message that finds its receive is never looked at here, and a sender whom nobody holds back has an empty table.
//!
//! ```text
//! sender, of one peer                        short message       long message
//! free                                       eager               announced
//! free, but too much waits for the port      pends               pends
//! held back                                  announced, counted  announced, counted
//!   and `window` of a communicator counted   pends               pends
//! ```
//!
//! **A message that is announced** costs its receiver a header, and stays in the user's buffer until it is matched.
//! **One that pends** costs nothing but its request. Those of one communicator go in order, also after they may go at
//! once again; those of another communicator go beside them.
//!
//! **How much a receiver keeps**: the bound; what its shared receive queue holds; and of each sender what it posted, or
//! let wait, before it heard of it, which its send queue and [`Limits::waiting`] bound, as a sender that finds its
//! queue full takes all that has come; of each sender and communicator a window of headers, unless it asks for more.
//!
//! **Why nothing is held up for ever.** Five rules:
//! 1. A process that is inside MPI takes whatever its ports have received. No message waits for memory there: the bound
//!    makes senders announce, and refuses nothing. So whatever is posted arrives, whoever floods whom.
//! 2. Only the first message of a send is ever announced instead, or pends. `ClearToSend`, `Finished`, `Acknowledge`,
//!    fragments that a receive asked for, and all that is said here are sent at once, by whoever; each answers a
//!    message that was matched, or is one of a fixed number for a peer and communicator, so that they need no bound of
//!    their own.
//! 3. Messages of the MPI library itself (negative tags: collectives) never pend, as no receive takes one of those and
//!    one of the program's. So a collective goes on beside any flood, at the price of an announcement.
//! 4. A message that pends because too much waits for the port goes when that has gone, which by the first rule is when
//!    the receiver is inside MPI.
//! 5. A message that pends because its window is full waits for an answer to one of those, or for its receiver to ask.
//!    Its sender says that some pend (`Pending`). A receiver that knows of it asks for more (`More`) when a receive or
//!    a probe of that communicator finds nothing, when a message comes that no receive took while some wait, and at
//!    once where a receive waits already. The window doubles. So if a receive waits whose message pends, the message is
//!    announced after finitely many such rounds: the case in which a window is full of messages that nobody wants yet
//!    is the one in which the receiver asks. And if none waits, nothing has to go on, by MPI's rule of progress.
//!
//! A receiver looks for senders with more only where its queue of unexpected messages is not empty. That suffices: a
//! window that is full is either in that queue, or matched, and then answered, or not there yet, and looked at when it
//! comes. Only a matched probe takes messages out of it that are not answered; so one that empties it asks for more,
//! and who hears `Pending` while it is empty.
//!
//! A process never holds itself back: what it has sent to itself it keeps, as no other process can wait for it.
//!
//! `HoldBack` and `GoOn` have a number, so that the last that was said counts, whichever comes last.
//!
//! **What it costs**: a send that has gone costs the same whatever pends, and to however many peers; only the messages
//! that go then are looked at. A word costs as much as there are communicators in which messages to that peer pend or are
//! announced.
//!
//! Called by the plugin (`pml/flow.rs`), which sends what stands here. Grade: pending. Threads: the owner's. Tests:
//! `flow_control/tests.rs`.

use std::collections::{BTreeMap, VecDeque};
use std::hash::Hash;
use std::ops::Bound;

use rustc_hash::{FxHashMap, FxHashSet};

#[cfg(test)]
mod tests;

/// The bounds of a process.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes that unexpected messages take before their senders are held back.
    pub kept: u64,
    /// Bytes of messages to one peer that wait for the port, before those that follow pend.
    pub waiting: u64,
    /// Messages of a communicator announced to one peer and not answered, before those that follow pend.
    pub window: u32,
}

impl Limits {
    /// Whether messages pend beside so many bytes that wait for the port. Beside none they never do, whatever the
    /// bound: a message that pends goes on when one that waits has gone.
    fn is_too_much(&self, waiting: u64) -> bool {
        waiting > 0 && waiting >= self.waiting
    }
}

/// What to say to a peer: the number of the word, and whether the peer is held back from then on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    /// Higher than that of any word before; wide enough never to wrap, as a peer may hear none for any time.
    pub number: u64,
    /// Short messages are to be announced as well.
    pub holds_back: bool,
}

/// The receiver's side. `P` names a peer.
#[derive(Debug)]
pub struct Kept<P> {
    bound: u64,
    bytes: u64,
    number: u64,
    held_back: FxHashSet<P>,
    /// By communicator the peers of which messages pend there.
    pending: FxHashMap<u32, FxHashSet<P>>,
}

impl<P: Copy + Eq + Hash> Kept<P> {
    /// Of a process that keeps nothing.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Kept { bound: limits.kept, bytes: 0, number: 0, held_back: FxHashSet::default(), pending: FxHashMap::default() }
    }

    /// A message is kept. True: that is beyond the bound, and who sent it is to be held back ([`Kept::hold_back`]).
    pub fn keep(&mut self, bytes: u64) -> bool {
        self.bytes += bytes;
        self.bytes > self.bound
    }

    /// A message is kept no longer. True: there is room again, for all who were held back ([`Kept::let_go`]).
    pub fn give_up(&mut self, bytes: u64) -> bool {
        self.bytes = self.bytes.saturating_sub(bytes);
        !self.held_back.is_empty() && self.bytes <= self.bound / 2
    }

    /// Bytes that are kept.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Holds a peer back. What it is to be told; `None`: it has been.
    pub fn hold_back(&mut self, peer: P) -> Option<Word> {
        self.held_back.insert(peer).then(|| self.word(true))
    }

    /// Who is to be told that he may go on, and what to say.
    pub fn let_go(&mut self) -> (Vec<P>, Word) {
        let peers = self.held_back.drain().collect();
        (peers, self.word(false))
    }

    fn word(&mut self, holds_back: bool) -> Word {
        self.number += 1;
        Word { number: self.number, holds_back }
    }

    /// A peer has said that messages of a communicator pend.
    pub fn pends(&mut self, peer: P, context: u32) {
        self.pending.entry(context).or_default().insert(peer);
    }

    /// Whether any peer has said so, and was not asked since.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Who is to be asked for more of a communicator.
    pub fn ask_for_more(&mut self, context: u32) -> Vec<P> {
        self.pending.remove(&context).into_iter().flatten().collect()
    }

    /// A peer has gone.
    pub fn forget(&mut self, peer: P) {
        self.held_back.remove(&peer);
        self.pending.retain(|_, peers| {
            peers.remove(&peer);
            !peers.is_empty()
        });
    }
}

/// How a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// As if there were no bounds: a short one at once, a long one announced.
    Free,
    /// It is announced; `counted`: among those of the window, until it is answered ([`Outgoing::answered`]).
    Announced {
        /// See above.
        counted: bool,
    },
    /// It stays where it is, for now ([`Outgoing::pend`]).
    Pends,
}

/// What a sender knows of a peer to which not every message goes freely.
#[derive(Debug)]
struct Peer<R> {
    is_held_back: bool,
    /// Bytes of the messages that wait for the port.
    waiting: u64,
    /// By communicator: the announced messages and the pending ones. A queue without any is removed.
    queues: BTreeMap<u32, Queue<R>>,
    /// Number of pending messages, of all communicators.
    pending: usize,
    /// Communicator of the last message that [`Outgoing::next_to`] has returned.
    turn: u32,
}

/// What goes to a peer in a communicator.
#[derive(Debug)]
struct Queue<R> {
    unanswered: u32,
    window: u32,
    pending: VecDeque<R>,
    /// The peer was told that some pend, and has not asked since.
    is_told: bool,
}

/// The sender's side. `P` names a peer, `R` a send.
#[derive(Debug)]
pub struct Outgoing<P, R> {
    limits: Limits,
    /// The peers to which not every message goes freely.
    peers: FxHashMap<P, Peer<R>>,
    /// Number of the last word of each peer that has said any. It outlives the peer's entry above.
    heard: FxHashMap<P, u64>,
}

impl<P: Copy + Eq + Hash, R> Outgoing<P, R> {
    /// The state of a process that has sent nothing.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Outgoing { limits, peers: FxHashMap::default(), heard: FxHashMap::default() }
    }

    /// Whether every message to every peer goes [`Way::Free`].
    #[must_use]
    #[inline]
    pub fn is_free(&self) -> bool {
        self.peers.is_empty()
    }

    /// How a message that is about to be sent goes. One that is announced and counted is counted now.
    pub fn way(&mut self, peer: P, context: u32, tag: i32) -> Way {
        let Some(known) = self.peers.get_mut(&peer) else { return Way::Free };
        if tag < 0 {
            return if known.is_held_back { Way::Announced { counted: false } } else { Way::Free };
        }
        if known.has_pending(context) { Way::Pends } else { known.way_of_next(context, self.limits) }
    }

    /// Whether a message in this communicator may go past here: the peer takes short ones, and none pends.
    #[must_use]
    pub fn may_pass(&self, peer: P, context: u32) -> bool {
        self.peers.get(&peer).is_none_or(|known| !known.is_held_back && !known.has_pending(context))
    }

    /// A message pends, behind those that do.
    pub fn pend(&mut self, peer: P, context: u32, send: R) {
        let known = self.peers.entry(peer).or_default();
        known.pending += 1;
        known.queue(context, self.limits.window).pending.push_back(send);
    }

    /// Whether the peer is to be told now that messages pend: the window is full, and it was not told since it last
    /// asked.
    pub fn tells(&mut self, peer: P, context: u32) -> bool {
        let Some(known) = self.peers.get_mut(&peer).filter(|known| known.is_held_back) else { return false };
        let Some(queue) = known.queues.get_mut(&context) else { return false };
        !queue.pending.is_empty() && !std::mem::replace(&mut queue.is_told, true)
    }

    /// The next message that pended and is to go now, and how. Called until there is none; then [`Outgoing::tells`] is
    /// asked.
    pub fn next(&mut self, peer: P, context: u32) -> Option<(R, Way)> {
        let next = self.peers.get_mut(&peer)?.next(context, self.limits);
        self.forget_if_free(peer);
        next
    }

    /// The next one to a peer in any communicator: they take turns. Called after [`Outgoing::went`] until there is none.
    pub fn next_to(&mut self, peer: P) -> Option<(R, Way)> {
        let known = self.peers.get_mut(&peer)?;
        known.turn = known.next_turn()?;
        let next = known.next(known.turn, self.limits);
        self.forget_if_free(peer);
        next
    }

    /// One that was announced and counted is answered.
    pub fn answered(&mut self, peer: P, context: u32) {
        let Some(known) = self.peers.get_mut(&peer) else { return };
        if let Some(queue) = known.queues.get_mut(&context) {
            queue.unanswered = queue.unanswered.saturating_sub(1);
            known.forget_if_idle(context);
            self.forget_if_free(peer);
        }
    }

    /// The peer asks for more.
    pub fn more(&mut self, peer: P, context: u32) {
        if let Some(queue) = self.peers.get_mut(&peer).and_then(|known| known.queues.get_mut(&context)) {
            queue.window = queue.window.saturating_mul(2);
            queue.is_told = false;
        }
    }

    /// The peer has said something. The communicators of which messages may go now; `None`: that was said before.
    pub fn heard(&mut self, peer: P, word: Word) -> Option<Vec<u32>> {
        // Words are numbered from 1.
        let last = self.heard.entry(peer).or_default();
        if word.number <= *last {
            return None;
        }
        *last = word.number;
        let known = self.peers.entry(peer).or_default();
        known.is_held_back = word.holds_back;
        let pending = known.queues.iter().filter(|(_, queue)| !queue.pending.is_empty());
        let pending = pending.map(|(context, _)| *context).collect();
        self.forget_if_free(peer);
        Some(pending)
    }

    /// A message of so many bytes waits for the port.
    pub fn waits(&mut self, peer: P, bytes: u64) {
        self.peers.entry(peer).or_default().waiting += bytes;
    }

    /// One that waited has gone. Whether messages that pend may go now ([`Outgoing::next_to`]).
    pub fn went(&mut self, peer: P, bytes: u64) -> bool {
        let Some(known) = self.peers.get_mut(&peer) else { return false };
        known.waiting = known.waiting.saturating_sub(bytes);
        let go = known.pending > 0 && !known.is_held_back && !self.limits.is_too_much(known.waiting);
        self.forget_if_free(peer);
        go
    }

    /// A peer has gone, to which nothing is to go any more.
    pub fn forget(&mut self, peer: P) {
        self.peers.remove(&peer);
        self.heard.remove(&peer);
    }

    /// Forgets a peer to which every message goes freely, so that [`Self::is_free`] holds again.
    fn forget_if_free(&mut self, peer: P) {
        if self.peers.get(&peer).is_some_and(Peer::is_free) {
            self.peers.remove(&peer);
        }
    }
}

impl<R> Default for Peer<R> {
    fn default() -> Self {
        Peer { is_held_back: false, waiting: 0, queues: BTreeMap::new(), pending: 0, turn: 0 }
    }
}

impl<R> Peer<R> {
    /// Whether every message goes freely to it again.
    fn is_free(&self) -> bool {
        !self.is_held_back && self.waiting == 0 && self.queues.is_empty()
    }

    fn has_pending(&self, context: u32) -> bool {
        self.queues.get(&context).is_some_and(|queue| !queue.pending.is_empty())
    }

    fn queue(&mut self, context: u32, window: u32) -> &mut Queue<R> {
        self.queues.entry(context).or_insert_with(|| Queue::new(window))
    }

    /// How the next message of a communicator goes. One that is announced is counted.
    fn way_of_next(&mut self, context: u32, limits: Limits) -> Way {
        if !self.is_held_back {
            return if limits.is_too_much(self.waiting) { Way::Pends } else { Way::Free };
        }
        let queue = self.queue(context, limits.window);
        if queue.unanswered >= queue.window {
            return Way::Pends;
        }
        queue.unanswered += 1;
        Way::Announced { counted: true }
    }

    /// Takes out the first pending message of a communicator if it may go now.
    fn next(&mut self, context: u32, limits: Limits) -> Option<(R, Way)> {
        if !self.has_pending(context) {
            return None;
        }
        let way = self.way_of_next(context, limits);
        if way == Way::Pends {
            return None;
        }
        let send = self.queues.get_mut(&context)?.pending.pop_front()?;
        self.pending -= 1;
        self.forget_if_idle(context);
        Some((send, way))
    }

    /// The communicator whose turn it is, of those of which messages pend.
    fn next_turn(&self) -> Option<u32> {
        let later = self.queues.range((Bound::Excluded(self.turn), Bound::Unbounded));
        let mut in_turn = later.chain(&self.queues);
        in_turn.find(|(_, queue)| !queue.pending.is_empty()).map(|(context, _)| *context)
    }

    /// Forgets a queue with nothing in it, whose window is then again what it was.
    fn forget_if_idle(&mut self, context: u32) {
        let is_idle = |queue: &Queue<R>| queue.unanswered == 0 && queue.pending.is_empty();
        if self.queues.get(&context).is_some_and(is_idle) {
            self.queues.remove(&context);
        }
    }
}

impl<R> Queue<R> {
    fn new(window: u32) -> Self {
        Queue { unanswered: 0, window, pending: VecDeque::new(), is_told: false }
    }
}
