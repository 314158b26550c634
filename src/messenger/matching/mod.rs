// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tag matching: decides which receive takes which message. Knows no adapter, protocol, MPI library or other part.
//! Serves MPI's envelopes ([`Envelope`]) and libfabric's ([`Tagged`]).
//!
//! A [`Matching`] has the posted receives and the unexpected messages of one communicator. [`Contexts`] is the table of
//! communicators by the context number that messages carry. The caller chooses the types of a receive (`R`), a small
//! value such as the address of a request, and of a message (`U`): its header and where its data is.
//!
//! MPI's rules, with the sections of MPI 3.1:
//!
//! - A message is taken by a receive of its communicator that names its source and tag, or leaves them open with
//!   [`ANY_SOURCE`], [`ANY_TAG`] (3.2.4). `ANY_TAG` takes tags of at least 0; negative ones are a library's own.
//! - An arriving message goes to the first posted of the receives that take it; a receive gets the first arrived of the
//!   messages that it takes. Messages of one sender arrive in order, so none overtakes another (3.5).
//! - [`Matching::probe`] returns the message that a receive would get (3.8.1). [`Matching::matched_probe`] removes that
//!   message from the queue; only its handle leads to it then (3.8.2). [`Matching::cancel`] removes an unmatched
//!   receive (3.8.4).
//!
//! libfabric's rules, by `fi_tagged(3)`, differ only in the patterns ([`Pattern::tagged`]). `FI_PEEK` is a probe,
//! `FI_PEEK` with `FI_CLAIM` a matched probe, `FI_CLAIM` its receive ([`Matching::take`]), and `FI_DISCARD` drops the
//! message that a search or that receive returns.
//!
//! Cost: a search looks at the head of a list first, and after a few entries at an index, so it does not depend on the
//! length of the queue (`tests/steps.rs`). Only the search that first needs an index builds it, which costs as much as
//! the queue is long. A queue allocates only when it is longer than ever before, and frees when its communicator goes.
//! Called by `receive/search.rs` and the host. Grade: hot. Threads: one at a time, without locks. A caller searches
//! directly before it inserts a receive or a message; with another call between the two, each could miss the other.
//! Tests: `tests/`, and in each file. `cargo bench -p ibex --bench matching`.

mod contexts;
mod envelope;
mod index;
pub mod lengths;
mod outcome;
mod pattern;
mod posted;
mod slab;
mod tagged;
#[cfg(test)]
mod tests;
mod unexpected;

pub use contexts::Contexts;
pub use envelope::{ANY_SOURCE, ANY_TAG, Envelope};
pub use outcome::{Message, MessageHandle, ReceiveHandle, Remains, Searched};
pub use pattern::{MatchBits, Pattern};
pub use tagged::{ADDR_UNSPEC, FiTag, Tagged};

use posted::Posted;
use slab::NONE;
use unexpected::Unexpected;

/// The posted receives and unexpected messages of a communicator, or of an endpoint of libfabric.
#[derive(Debug)]
pub struct Matching<R, U, E = Envelope> {
    posted: Posted<R, E>,
    unexpected: Unexpected<U, E>,
}

impl<R: Copy, U, E: MatchBits> Default for Matching<R, U, E> {
    fn default() -> Self {
        Matching::new()
    }
}

impl<R: Copy, U, E: MatchBits> Matching<R, U, E> {
    /// Makes a communicator with empty queues.
    pub const fn new() -> Self {
        Matching { posted: Posted::new(), unexpected: Unexpected::new() }
    }

    /// Removes and returns the first message that the pattern takes.
    #[inline]
    pub fn search_unexpected(&mut self, pattern: Pattern<E>) -> Searched<Message<U, E>> {
        let (taken, attempts) = self.unexpected.take(pattern);
        Searched { found: taken.map(|(envelope, message)| Message { envelope, message }), attempts }
    }

    /// Posts a receive, directly after a search that found nothing.
    #[inline]
    pub fn insert_posted(&mut self, pattern: Pattern<E>, request: R) -> ReceiveHandle {
        ReceiveHandle(self.posted.insert(pattern, request))
    }

    /// Posts a receive in the place of the one that a search has just returned: those behind it stay behind it.
    pub fn put_back_posted(&mut self, pattern: Pattern<E>, request: R) -> ReceiveHandle {
        ReceiveHandle(self.posted.put_back(pattern, request))
    }

    /// Removes and returns the first receive that takes the message.
    #[inline]
    pub fn search_posted(&mut self, envelope: E) -> Searched<R> {
        let (found, attempts) = self.posted.take(envelope);
        Searched { found, attempts }
    }

    /// Stores a message that has arrived, directly after a search that found nothing.
    #[inline]
    pub fn insert_unexpected(&mut self, envelope: E, message: U) -> MessageHandle {
        MessageHandle(self.unexpected.insert(envelope, message))
    }

    /// Returns the message that a receive posted now would get.
    pub fn probe(&mut self, pattern: Pattern<E>) -> Searched<Message<&U, E>> {
        let (at, attempts) = self.unexpected.find(pattern);
        let found = self.unexpected.get(at).map(|(envelope, message)| Message { envelope, message });
        Searched { found, attempts }
    }

    /// Removes the message that a receive posted now would get from the queue. Only its handle leads to it then
    /// ([`Matching::take`]).
    pub fn matched_probe(&mut self, pattern: Pattern<E>) -> Searched<Message<MessageHandle, E>> {
        let (at, attempts) = self.unexpected.find(pattern);
        let aside = if at == NONE { None } else { self.unexpected.set_aside(at) };
        let found = aside.map(|(envelope, handle)| Message { envelope, message: MessageHandle(handle) });
        Searched { found, attempts }
    }

    /// Removes and returns the queued messages for which `is_gone` holds: their sender is lost.
    pub fn drop_unexpected(&mut self, is_gone: impl FnMut(E, &U) -> bool) -> Vec<U> {
        self.unexpected.drop_queued(is_gone)
    }

    /// Takes the message with this handle, for the receive of a matched probe. `None` if it was taken before.
    pub fn take(&mut self, handle: MessageHandle) -> Option<Message<U, E>> {
        let at = self.unexpected.resolve(handle.0)?;
        self.unexpected.take_at(at).map(|(envelope, message)| Message { envelope, message })
    }

    /// Returns the message with this handle, queued or set aside, to be updated. `None` if it was taken.
    pub fn message_mut(&mut self, handle: MessageHandle) -> Option<&mut U> {
        let at = self.unexpected.resolve(handle.0)?;
        self.unexpected.get_mut(at)
    }

    /// Cancels the posted receive of this request. False if it was matched or cancelled, or is of another communicator.
    pub fn cancel(&mut self, handle: ReceiveHandle, request: R) -> bool
    where
        R: PartialEq,
    {
        self.posted.cancel(handle.0, request)
    }

    /// Number of posted receives.
    pub const fn posted(&self) -> u32 {
        self.posted.len()
    }

    /// Number of unexpected messages, without those of matched probes.
    pub const fn unexpected(&self) -> u32 {
        self.unexpected.len()
    }

    /// Whether there are unexpected messages, those of matched probes included.
    pub const fn has_messages(&self) -> bool {
        self.unexpected.has_messages()
    }

    /// Ends the communicator; returns the receives and messages left in it.
    pub fn into_remains(self) -> Remains<R, U, E> {
        let receives = self.posted.requests().collect();
        let messages = self.unexpected.into_messages().into_iter();
        let messages = messages.map(|(envelope, message)| Message { envelope, message }).collect();
        Remains { receives, messages }
    }
}
