// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results of a poll: received messages, completed requests, failed peers. `port/poll.rs` makes them and returns
//! them to the plugin in a [`Batch`], so that the plugin's callbacks run while the port is not borrowed. Grade: hot.
//! Threads: plain data. Tests: below.

use super::work_request::{EndpointId, Immediate};
use arrayvec::{ArrayVec, CapacityError};
use ibex_ffi::verbs::Status;
use std::collections::VecDeque;

/// A value that the caller gives to a request and gets back with its completion. With 0 the port reports only a
/// failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token(pub u64);

/// How a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed {
    /// The adapter's status; also "flushed" if the request never reached the adapter because its connection had failed.
    pub status: Status,
    /// Whether the adapter had the request; if not, the peer received nothing of it.
    pub posted: bool,
}

/// The bytes of a message in its receive slot. Only a port makes one, for a message that the adapter has put there, and
/// lends it until it posts the slot again: in a poll while a handler looks at it, else until the batch is released.
/// Unsafe code of the plugin relies on that. So nobody else can make one:
///
/// ```compile_fail,E0451
/// let _ = ibex::transport::ReceivedMessage { address: 4096, length: 8 };
/// ```
///
/// or keep one:
///
/// ```compile_fail,E0507
/// fn keep(message: &ibex::transport::ReceivedMessage) -> ibex::transport::ReceivedMessage {
///     *message
/// }
/// ```
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct ReceivedMessage {
    address: u64,
    length: u32,
}

impl ReceivedMessage {
    #[inline(always)]
    pub(super) const fn new(address: u64, length: u32) -> Self {
        ReceivedMessage { address, length }
    }

    /// Returns the address of the first byte.
    #[inline(always)]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Returns the number of bytes.
    #[inline(always)]
    pub const fn length(&self) -> u32 {
        self.length
    }
}

/// An event of a port.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub enum Completion {
    /// A message arrived. Its bytes stay in place until the slot is released ([`crate::transport::Port::release`]).
    Message {
        /// Its bytes.
        message: ReceivedMessage,
        /// The receive slot that holds them.
        slot: u32,
        /// Its immediate data: the tag and the claimed sender ([`crate::transport::Port::sender`]).
        immediate: Immediate,
        /// The number of the local queue pair that received it.
        qp_num: u32,
    },
    /// A request with a token has completed or failed.
    Request {
        /// The token.
        token: Token,
        /// The endpoint of the peer.
        to: EndpointId,
        /// The result.
        outcome: Result<(), Failed>,
    },
    /// The port lost its link, or has it again. While peers are diverted, the port repeats from time to time that it
    /// has a link ([`crate::transport::Port::divert_all`]).
    LinkChanged {
        /// Whether it has a link.
        is_up: bool,
    },
    /// The connection to a peer failed. Reported once; [`crate::transport::Port::failure`] says why.
    PeerFailed {
        /// The peer.
        peer: EndpointId,
    },
}

/// A handler that may consume messages in place, within the poll ([`crate::transport::Port::poll_direct`]). A trait, so
/// that it is inlined into the poll.
pub trait TakesMessages {
    /// The handler of completed requests. A separate type, so that the handler of messages can stay in registers.
    type Requests: TakesRequests;

    /// Whether it consumes the message, which has this immediate data. The port is borrowed meanwhile.
    fn takes(&mut self, message: &ReceivedMessage, immediate: Immediate) -> bool;

    /// The handler of successful requests.
    fn requests(&mut self) -> &mut Self::Requests;

    /// Called if most polls since the last check of connections have found something: a caller that waits only for this
    /// port should let others progress. The port is borrowed meanwhile.
    #[inline]
    fn is_busy(&mut self) {}
}

/// A handler that may consume successful requests in place, within the poll. Only the port calls it, at most once for
/// each token that a caller has given it. Unsafe code of the plugin relies on that.
pub trait TakesRequests {
    /// Whether it consumes the token. The port is borrowed meanwhile.
    fn takes_request(&mut self, token: Token) -> bool;
}

/// A handler that consumes nothing.
pub(super) struct TakesNone;

impl TakesMessages for TakesNone {
    type Requests = Self;

    #[inline(always)]
    fn takes(&mut self, _: &ReceivedMessage, _: Immediate) -> bool {
        false
    }

    #[inline(always)]
    fn requests(&mut self) -> &mut Self {
        self
    }
}

impl TakesRequests for TakesNone {
    #[inline(always)]
    fn takes_request(&mut self, _: Token) -> bool {
        false
    }
}

/// Completions of one poll.
#[derive(Debug)]
pub struct Batch {
    completions: ArrayVec<Completion, { Batch::CAPACITY }>,
    /// Raw stamps of the adapter, of those completions whose bit is set in `stamped`.
    stamps: [u64; Batch::CAPACITY],
    stamped: u64,
}

const _: () = assert!(Batch::CAPACITY <= 64, "a bit for each completion");

impl Default for Batch {
    fn default() -> Self {
        Batch::new()
    }
}

impl Batch {
    /// Number of completions that fit: more than a poll takes, as one of the adapter's may stand for many requests.
    pub const CAPACITY: usize = 64;

    /// Makes an empty batch.
    #[inline]
    pub const fn new() -> Self {
        Batch { completions: ArrayVec::new_const(), stamps: [0; Batch::CAPACITY], stamped: 0 }
    }

    /// Returns the completions, in the order in which they happened.
    #[inline]
    pub fn completions(&self) -> &[Completion] {
        &self.completions
    }

    /// Returns the adapter's raw stamp of the completion at `index`; `None` if the poll did not ask for stamps.
    pub fn stamp(&self, index: usize) -> Option<u64> {
        (index < self.completions.len() && self.stamped >> index & 1 != 0).then(|| self.stamps[index])
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        self.completions.clear();
        self.stamped = 0;
    }

    /// Empties a batch that holds only requests, which need no release by the port. Leaves a batch with messages
    /// unchanged, and returns false.
    #[inline]
    pub fn clear_of_requests(&mut self) -> bool {
        let is_of_requests = self.completions.iter().all(|one| matches!(one, Completion::Request { .. }));
        if is_of_requests {
            self.clear();
        }
        is_of_requests
    }

    #[inline]
    pub(super) fn room(&self) -> usize {
        self.completions.remaining_capacity()
    }

    /// Adds a completion; returns it if the batch is full.
    #[inline]
    fn push(&mut self, completion: Completion) -> Result<(), Completion> {
        self.completions.try_push(completion).map_err(CapacityError::element)
    }

    /// Sets the stamp of all completions from index `from` to `raw`. Returns the number of completions.
    #[inline(always)]
    fn stamp_from(&mut self, from: usize, raw: u64) -> usize {
        let end = self.completions.len();
        for index in from..end {
            self.stamps[index % Batch::CAPACITY] = raw;
            self.stamped |= 1 << index;
        }
        end
    }

    fn take_held(&mut self) -> impl Iterator<Item = Held> {
        let Batch { completions, stamps, stamped } = self;
        let stamp = |index: usize| (*stamped >> index & 1 != 0).then(|| stamps[index]);
        completions.drain(..).enumerate().map(move |(index, completion)| Held { completion, stamp: stamp(index) })
    }
}

#[derive(Debug)]
struct Held {
    completion: Completion,
    stamp: Option<u64>,
}

/// Completions that wait for a later batch, in order: those that did not fit, and those made outside a poll.
#[derive(Debug, Default)]
pub(super) struct Undelivered(VecDeque<Held>);

/// Sizes of a batch and of the undelivered completions. Completions added after it was taken have no stamp yet.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    batch: usize,
    undelivered: usize,
}

impl Undelivered {
    pub(super) fn new() -> Self {
        Undelivered(VecDeque::with_capacity(64))
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn push(&mut self, completion: Completion) {
        self.0.push_back(Held { completion, stamp: None });
    }

    /// Puts a completion into the batch, or if that is full behind the waiting completions.
    #[inline]
    pub(super) fn deliver(&mut self, batch: &mut Batch, completion: Completion) {
        if let Err(completion) = batch.push(completion) {
            self.push(completion);
        }
    }

    pub(super) fn drain(&mut self, batch: &mut Batch) {
        while batch.room() > 0 {
            let Some(Held { completion, stamp }) = self.0.pop_front() else { break };
            let from = batch.completions.len();
            if batch.push(completion).is_ok()
                && let Some(raw) = stamp
            {
                batch.stamp_from(from, raw);
            }
        }
    }

    /// Takes over the completions of a batch, except successful requests whose token `is_taken` consumes.
    pub(super) fn hold(&mut self, batch: &mut Batch, mut is_taken: impl FnMut(Token) -> bool) {
        self.0.extend(batch.take_held().filter(|held| !held.succeeded().is_some_and(&mut is_taken)));
    }

    pub(super) fn append(&mut self, later: &mut Undelivered) {
        self.0.append(&mut later.0);
    }

    #[inline]
    pub(super) fn mark(&self, batch: &Batch) -> Mark {
        Mark { batch: batch.completions.len(), undelivered: self.0.len() }
    }

    /// Stamps the completions behind `mark`, and moves the mark.
    #[inline(always)]
    pub(super) fn stamp_after(&mut self, mark: &mut Mark, batch: &mut Batch, raw: u64) {
        mark.batch = batch.stamp_from(mark.batch, raw);
        if self.0.len() > mark.undelivered {
            self.stamp_undelivered(mark, raw);
        }
    }

    #[cold]
    fn stamp_undelivered(&mut self, mark: &mut Mark, raw: u64) {
        self.0.iter_mut().skip(mark.undelivered).for_each(|held| held.stamp = Some(raw));
        mark.undelivered = self.0.len();
    }
}

impl Held {
    fn succeeded(&self) -> Option<Token> {
        match self.completion {
            Completion::Request { token, outcome: Ok(()), .. } => Some(token),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(peer: u32) -> Completion {
        Completion::PeerFailed { peer: EndpointId::from_index(peer) }
    }

    fn stamps(batch: &Batch) -> Vec<Option<u64>> {
        (0..batch.completions().len()).map(|index| batch.stamp(index)).collect()
    }

    #[test]
    fn a_completion_fills_half_a_cache_line() {
        assert_eq!(size_of::<Completion>(), 32);
    }

    #[test]
    fn a_completion_keeps_its_stamp_when_it_has_to_wait_and_has_none_of_an_earlier_batch() {
        let (mut batch, mut undelivered) = (Batch::new(), Undelivered::new());
        undelivered.deliver(&mut batch, failed(0));
        let mut mark = undelivered.mark(&batch);
        undelivered.deliver(&mut batch, failed(1));
        undelivered.deliver(&mut batch, failed(2));
        undelivered.stamp_after(&mut mark, &mut batch, 77);
        assert_eq!(stamps(&batch), [None, Some(77), Some(77)]);
        undelivered.hold(&mut batch, |_| false);
        batch.clear();
        undelivered.push(failed(9));
        undelivered.drain(&mut batch);
        assert_eq!(stamps(&batch), [None, Some(77), Some(77), None]);
    }

    #[test]
    fn a_completion_beyond_a_full_batch_keeps_the_stamp_of_its_poll() {
        let (mut batch, mut undelivered) = (Batch::new(), Undelivered::new());
        (0..Batch::CAPACITY as u32).for_each(|peer| undelivered.deliver(&mut batch, failed(peer)));
        let mut mark = undelivered.mark(&batch);
        for raw in [77, 78] {
            undelivered.deliver(&mut batch, failed(99));
            undelivered.stamp_after(&mut mark, &mut batch, raw);
        }
        batch.clear();
        undelivered.drain(&mut batch);
        assert_eq!(stamps(&batch), [Some(77), Some(78)]);
    }

    #[test]
    fn completions_beyond_a_full_batch_come_with_the_next_in_order() {
        let (mut batch, mut undelivered) = (Batch::new(), Undelivered::new());
        for peer in 0..Batch::CAPACITY as u32 + 2 {
            undelivered.deliver(&mut batch, failed(peer));
        }
        assert_eq!((batch.completions().len(), undelivered.is_empty()), (Batch::CAPACITY, false));
        batch.clear();
        undelivered.drain(&mut batch);
        let peers: Vec<u32> = batch
            .completions()
            .iter()
            .map(|completion| match completion {
                Completion::PeerFailed { peer } => peer.index(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(peers, [64, 65]);
    }
}
