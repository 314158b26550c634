// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow control: bounds the memory of unexpected messages at their receiver, and of unsent messages at their sender.
//!
//! [`Kept`] is the receiver's side, one per process. It adds up the bytes of unexpected messages. Beyond the bound the
//! receiver holds back each sender that adds to them (`HoldBack`); below half of the bound it lets those senders go on
//! (`GoOn`). Both carry a number; the highest counts, in whichever order they arrive. A process never holds itself
//! back. [`Outgoing`] is the sender's side: it decides how each message is sent ([`SendPath`]), and keeps the messages
//! that pend. While no peer holds back and no message pends, a send costs one test ([`Outgoing::is_free`]).
//!
//! ```text
//! sender, of one peer                        short message       long message
//! free                                       eager               announced
//! free, but the port has no room             pends               pends
//! held back                                  announced, counted  announced, counted
//!   and `window` of a communicator counted   pends               pends
//! ```
//!
//! An announced message costs its receiver a header, and stays in the user's buffer until it is matched. A pending
//! message costs its sender only the request. Messages of one communicator keep their order, also when pending ones are
//! sent; other communicators do not wait for them. A message that finds no room is the first that pends, and all later
//! ones to its peer pend behind it until their turn; the port says when that is. The communicators then take turns.
//!
//! **The most that a receiver keeps** is the sum of: the bound; the slots of its shared receive queue; per sender, the
//! messages that it posted before `HoldBack` reached it, one send queue of them if `HoldBack` is as fast as they are,
//! because a sender handles all arrived messages before it sends pending ones; per sender and communicator a window of
//! headers, or more if the receiver asked for more.
//!
//! **Why no message waits for ever:**
//! 1. A process inside MPI takes every message that its ports have received. Beyond the bound it makes senders
//!    announce, but it refuses nothing. So a posted message arrives, however many processes flood each other.
//! 2. Only the message that begins a send can be announced, or pend. `ClearToSend`, `Finished`, `Acknowledge`,
//!    fragments and the messages of this file are sent at once: each answers a matched message, or there is a fixed
//!    number of them per peer and communicator.
//! 3. Messages of the MPI library itself (negative tags: collectives) pend only for room, in a queue of their own, and
//!    no receive takes both these and the program's messages. So no flood stops a collective.
//! 4. A message that pends for room is sent when the port has some, by rule 1 once the receiver is inside MPI.
//! 5. A message that pends because its window is full waits until an announced message is answered, or until the
//!    receiver asks. Its sender reports the pending messages (`Pending`). The receiver asks for more (`More`) when a
//!    receive or a probe of the communicator finds no message, when a message arrives that no receive takes while
//!    receives wait, and at once if a receive waits already. Each `More` doubles the window, so a receive gets its
//!    pending message after finitely many rounds, even if no receive wants the messages in the window.
//!
//! A receive asks only if unexpected messages are stored, those that matched probes have taken out included. That
//! suffices: each message of a full window is stored, or was matched and is therefore answered, or has yet to arrive,
//! and its arrival checks again.
//!
//! **Cost**: the cost of a message does not depend on the number of pending messages and peers. A `HoldBack`, a `GoOn`,
//! and a message sent in a turn cost at most one step per communicator in which messages to that peer pend or are
//! announced. Called by `flow_control/messages.rs`, which sends these messages, and by `send`. Grade: pending.
//! Threads: the owner's. Tests: `flow_control/tests.rs`.

use std::collections::{BTreeMap, VecDeque};
use std::hash::Hash;
use std::ops::Bound;

use rustc_hash::{FxHashMap, FxHashSet};

mod messages;
pub mod state;
#[cfg(test)]
mod tests;

pub use messages::{answered, found_nothing, give_up, heard, keep, let_go_if_room, more, pend, pending};

/// Limits of a process.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of unexpected messages beyond which the receiver holds their senders back.
    pub kept: u64,
    /// Most announced and unanswered messages of a communicator to one peer. Further ones pend.
    pub window: u32,
}

/// A `HoldBack` or `GoOn` for a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    /// Higher than each earlier number. 64 bits never wrap, so a peer may miss any number of words.
    pub number: u64,
    /// True: `HoldBack`, the peer must announce short messages too. False: `GoOn`.
    pub holds_back: bool,
}

/// The receiver's side. `P` names a peer.
#[derive(Debug)]
pub struct Kept<P> {
    bound: u64,
    bytes: u64,
    number: u64,
    held_back: FxHashSet<P>,
    /// Peers that reported pending messages, by communicator.
    pending: FxHashMap<u32, FxHashSet<P>>,
}

impl<P: Copy + Eq + Hash> Kept<P> {
    /// Starts without unexpected messages.
    pub fn new(limits: Limits) -> Self {
        Kept { bound: limits.kept, bytes: 0, number: 0, held_back: FxHashSet::default(), pending: FxHashMap::default() }
    }

    /// Adds an unexpected message. Returns true if the sum is beyond the bound: the caller holds its sender back.
    pub fn keep(&mut self, bytes: u64) -> bool {
        self.bytes += bytes;
        self.bytes > self.bound
    }

    /// Subtracts a message that has left.
    pub fn give_up(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Whether senders are held back that may go on ([`Kept::let_go`]).
    pub fn has_room(&self) -> bool {
        !self.held_back.is_empty() && self.bytes <= self.bound / 2
    }

    /// Bytes of the unexpected messages.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Holds a peer back. Returns the `HoldBack` to send, or `None` if the peer is held back already.
    pub fn hold_back(&mut self, peer: P) -> Option<Word> {
        self.held_back.insert(peer).then(|| self.word(true))
    }

    /// Returns the held-back peers, and the `GoOn` to send to each.
    pub fn let_go(&mut self) -> (Vec<P>, Word) {
        let peers = self.held_back.drain().collect();
        (peers, self.word(false))
    }

    fn word(&mut self, holds_back: bool) -> Word {
        self.number += 1;
        Word { number: self.number, holds_back }
    }

    /// Notes that a peer reported pending messages of a communicator.
    pub fn pends(&mut self, peer: P, context: u32) {
        self.pending.entry(context).or_default().insert(peer);
    }

    /// Whether a peer reported pending messages and was not asked for more since.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns the peers to ask for more messages of a communicator, and removes them.
    pub fn ask_for_more(&mut self, context: u32) -> Vec<P> {
        self.pending.remove(&context).into_iter().flatten().collect()
    }

    /// Removes a peer that has gone.
    pub fn forget(&mut self, peer: P) {
        self.held_back.remove(&peer);
        self.pending.retain(|_, peers| {
            peers.remove(&peer);
            !peers.is_empty()
        });
    }
}

/// How a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendPath {
    /// Without limits: a short one eagerly, a long one announced.
    Free,
    /// Announced. If `counted`, it counts for the window until it is answered ([`Outgoing::answered`]).
    Rendezvous {
        /// Whether it counts for the window.
        counted: bool,
    },
    /// Not sent yet ([`Outgoing::pend`]).
    Pending,
}

/// Messages that keep their order: in a communicator, those of the program (false) or of the MPI library (true).
pub type Stream = (u32, bool);

/// A sender's state for a peer to which some messages cannot be sent freely.
#[derive(Debug)]
struct Peer<R> {
    is_held_back: bool,
    /// Whether a message found no room, so that all pend until their turn.
    is_full: bool,
    /// Announced and pending messages. A queue without any is removed.
    queues: BTreeMap<Stream, Queue<R>>,
    /// Stream of the last message that [`Outgoing::next_in_turn`] returned.
    last: Stream,
}

/// The messages of one stream to one peer.
#[derive(Debug)]
struct Queue<R> {
    unanswered: u32,
    window: u32,
    pending: VecDeque<R>,
    /// Whether the peer knows of the pending messages and has not asked for more since.
    has_sent_pending: bool,
}

/// The sender's side. `P` names a peer, `R` a send.
#[derive(Debug)]
pub struct Outgoing<P, R> {
    window: u32,
    peers: FxHashMap<P, Peer<R>>,
    /// Number of each peer's last `HoldBack` or `GoOn`; it outlives the peer's entry in `peers`.
    heard: FxHashMap<P, u64>,
}

impl<P: Copy + Eq + Hash, R> Outgoing<P, R> {
    /// Starts with nothing sent.
    pub fn new(limits: Limits) -> Self {
        Outgoing { window: limits.window, peers: FxHashMap::default(), heard: FxHashMap::default() }
    }

    /// Whether every message to every peer goes [`SendPath::Free`].
    #[inline]
    pub fn is_free(&self) -> bool {
        self.peers.is_empty()
    }

    /// Decides how the next message is sent, and counts it if it is [`SendPath::Rendezvous`] and counted.
    pub fn send_path(&mut self, peer: P, of: Stream) -> SendPath {
        let Some(known) = self.peers.get_mut(&peer) else { return SendPath::Free };
        if known.is_full || known.has_pending(of) { SendPath::Pending } else { known.next_path(of, self.window) }
    }

    /// Whether the next message of this communicator may bypass this module: the peer does not hold back, none pends.
    pub fn may_pass(&self, peer: P, context: u32) -> bool {
        let passes = |known: &Peer<R>| ![false, true].into_iter().any(|of| known.has_pending((context, of)));
        self.peers.get(&peer).is_none_or(|known| !known.is_held_back && passes(known))
    }

    /// Adds a message behind the pending ones. Returns whether the caller has to send `Pending`, as
    /// [`Outgoing::must_send_pending`] does.
    pub fn pend(&mut self, peer: P, of: Stream, send: R) -> bool {
        let known = self.peers.entry(peer).or_default();
        known.queue(of, self.window).pending.push_back(send);
        known.must_send_pending(of)
    }

    /// Takes back a message for which the port had no room: it is the first of its stream that pends.
    pub fn found_no_room(&mut self, peer: P, of: Stream, send: R) {
        let known = self.peers.entry(peer).or_default();
        known.is_full = true;
        known.queue(of, self.window).pending.push_front(send);
    }

    /// Whether messages to the peer pend until their turn.
    pub fn is_full(&self, peer: P) -> bool {
        self.peers.get(&peer).is_some_and(|known| known.is_full)
    }

    /// Whether the caller has to send `Pending` now: the peer holds this process back, messages pend, and no `Pending`
    /// was sent since the peer last asked for more. Notes it as sent.
    pub fn must_send_pending(&mut self, peer: P, context: u32) -> bool {
        self.peers.get_mut(&peer).is_some_and(|known| known.must_send_pending((context, false)))
    }

    /// Returns the next pending message of the program that can be sent now, and how. The caller repeats this until
    /// `None`, and then calls [`Outgoing::must_send_pending`].
    pub fn next(&mut self, peer: P, context: u32) -> Option<(R, SendPath)> {
        let known = self.peers.get_mut(&peer).filter(|known| !known.is_full)?;
        let next = known.next((context, false), self.window);
        self.forget_if_free(peer);
        next
    }

    /// Returns the next message to a peer whose turn it is; the communicators alternate. The caller repeats this until
    /// `None`, and then calls [`Outgoing::has_room`]; or until it has to call [`Outgoing::found_no_room`].
    pub fn next_in_turn(&mut self, peer: P) -> Option<(R, SendPath)> {
        let known = self.peers.get_mut(&peer).filter(|known| known.is_full)?;
        known.last = known.next_stream()?;
        known.next(known.last, self.window)
    }

    /// Notes that no message to the peer pends for room any more.
    pub fn has_room(&mut self, peer: P) {
        if let Some(known) = self.peers.get_mut(&peer) {
            known.is_full = false;
            self.forget_if_free(peer);
        }
    }

    /// Notes that the peer answered a counted announcement.
    pub fn answered(&mut self, peer: P, context: u32) {
        let Some(known) = self.peers.get_mut(&peer) else { return };
        if let Some(queue) = known.queues.get_mut(&(context, false)) {
            queue.unanswered = queue.unanswered.saturating_sub(1);
            known.forget_if_idle((context, false));
            self.forget_if_free(peer);
        }
    }

    /// Notes that the peer asked for more.
    pub fn more(&mut self, peer: P, context: u32) {
        if let Some(queue) = self.peers.get_mut(&peer).and_then(|known| known.queues.get_mut(&(context, false))) {
            queue.window = queue.window.saturating_mul(2);
            queue.has_sent_pending = false;
        }
    }

    /// Notes a `HoldBack` or `GoOn`. Returns the communicators with pending messages; `None` if the word is outdated.
    pub fn heard(&mut self, peer: P, word: Word) -> Option<Vec<u32>> {
        // Numbers begin at 1.
        let last = self.heard.entry(peer).or_default();
        if word.number <= *last {
            return None;
        }
        *last = word.number;
        let known = self.peers.entry(peer).or_default();
        known.is_held_back = word.holds_back;
        let pending = known.queues.iter().filter(|((_, of_library), queue)| !of_library && !queue.pending.is_empty());
        let pending = pending.map(|((context, _), _)| *context).collect();
        self.forget_if_free(peer);
        Some(pending)
    }

    /// Removes a peer that has gone, and its queues. Returns the messages that pend.
    pub fn forget(&mut self, peer: P) -> Vec<R> {
        self.heard.remove(&peer);
        let queues = self.peers.remove(&peer).map(|known| known.queues).unwrap_or_default();
        queues.into_values().flat_map(|queue| queue.pending).collect()
    }

    /// Removes a peer to which all messages can be sent freely, so that [`Self::is_free`] can hold again.
    fn forget_if_free(&mut self, peer: P) {
        if self.peers.get(&peer).is_some_and(Peer::is_free) {
            self.peers.remove(&peer);
        }
    }
}

impl<R> Default for Peer<R> {
    fn default() -> Self {
        Peer { is_held_back: false, is_full: false, queues: BTreeMap::new(), last: (0, false) }
    }
}

impl<R> Peer<R> {
    fn is_free(&self) -> bool {
        !self.is_held_back && !self.is_full && self.queues.is_empty()
    }

    fn has_pending(&self, of: Stream) -> bool {
        self.queues.get(&of).is_some_and(|queue| !queue.pending.is_empty())
    }

    fn queue(&mut self, of: Stream, window: u32) -> &mut Queue<R> {
        let new = || Queue { unanswered: 0, window, pending: VecDeque::new(), has_sent_pending: false };
        self.queues.entry(of).or_insert_with(new)
    }

    fn must_send_pending(&mut self, of: Stream) -> bool {
        // Messages of the MPI library do not wait for the peer.
        if !self.is_held_back || of.1 {
            return false;
        }
        let Some(queue) = self.queues.get_mut(&of) else { return false };
        !queue.pending.is_empty() && !std::mem::replace(&mut queue.has_sent_pending, true)
    }

    fn next_path(&mut self, of: Stream, window: u32) -> SendPath {
        match (self.is_held_back, of.1) {
            (false, _) => return SendPath::Free,
            (true, true) => return SendPath::Rendezvous { counted: false },
            (true, false) => {}
        }
        let queue = self.queue(of, window);
        if queue.unanswered >= queue.window {
            return SendPath::Pending;
        }
        queue.unanswered += 1;
        SendPath::Rendezvous { counted: true }
    }

    fn next(&mut self, of: Stream, window: u32) -> Option<(R, SendPath)> {
        if !self.has_pending(of) {
            return None;
        }
        let path = self.next_path(of, window);
        if path == SendPath::Pending {
            return None;
        }
        let send = self.queues.get_mut(&of)?.pending.pop_front()?;
        self.forget_if_idle(of);
        Some((send, path))
    }

    /// Returns the next stream in turn that has a pending message which need not wait for the peer.
    fn next_stream(&self) -> Option<Stream> {
        let may_go = |(of, queue): &(&Stream, &Queue<R>)| {
            !queue.pending.is_empty() && (!self.is_held_back || of.1 || queue.unanswered < queue.window)
        };
        let later = self.queues.range((Bound::Excluded(self.last), Bound::Unbounded));
        later.chain(&self.queues).find(may_go).map(|(of, _)| *of)
    }

    /// Removes a queue without messages. A later queue begins with the window of [`Limits`] again.
    fn forget_if_idle(&mut self, of: Stream) {
        let is_idle = |queue: &Queue<R>| queue.unanswered == 0 && queue.pending.is_empty();
        if self.queues.get(&of).is_some_and(is_idle) {
            self.queues.remove(&of);
        }
    }
}
