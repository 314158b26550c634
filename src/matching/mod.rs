// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tag matching: which receive takes which message. Knows no adapter, no protocol and no MPI library, and nothing else
//! of the engine.
//!
//! A [`Matching`] is one communicator's: its posted receives and its unexpected messages. [`Contexts`] is the table of
//! communicators by the number that messages carry. What a receive (`R`) and a message (`U`) are is the caller's
//! matter: `R` is a small value, such as the address of a request; `U` a message's header and where its data is.
//!
//! The rules, with the sections of MPI 3.1:
//!
//! - A message is taken by a receive of its communicator that names its source and tag, or leaves them open with
//!   [`ANY_SOURCE`], [`ANY_TAG`] (3.2.4). `ANY_TAG` takes tags of at least 0; negative ones are a library's own, all 32
//!   bits of them.
//! - An arriving message goes to the receive that was posted first among those that take it, and a receive has the
//!   message that arrived first among those that it takes. With messages of one sender arriving in their order, none
//!   overtakes another (3.5).
//! - [`Matching::probe`] shows the message that a receive would have (3.8.1); [`Matching::matched_probe`] takes it out,
//!   so that its handle alone leads to it (3.8.2). [`Matching::cancel`] takes a receive back that nothing has come for
//!   (3.8.4).
//!
//! | file | what |
//! |---|---|
//! | `pattern.rs` | envelopes and patterns: the one comparison |
//! | `posted.rs`, `unexpected.rs` | the two queues |
//! | `slab.rs`, `index.rs`, `threshold.rs` | what they are made of: places, lists, hashed indexes, and when these are worth it |
//! | `contexts.rs` | the table of communicators |
//! | `outcome.rs` | what each operation says has happened, and which events that is |
//!
//! Cost: a search looks at the head of a list first, and after a few entries at an index; so it does not depend on the
//! length of the queue (`tests/steps.rs`), with two exceptions. An index is built by the search that first needs it,
//! which costs as much as the queue is long, once for so many insertions. And a queue that does not fit the processor's
//! cache costs what memory costs, where each search is for another entry. Path: hot; nothing is allocated but when a
//! queue is longer than ever before; what it needed then it keeps until its communicator goes.
//!
//! Threads: one at a time, by `&mut self`. Under `MPI_THREAD_MULTIPLE` a caller has one lock for each communicator,
//! `Contexts<Arc<Mutex<..>>, _>`, so that threads with a communicator each do not meet. A post holds its communicator's
//! lock for the search and the insertion together ([`Matching::post`], or both parts), as does an arrival; else each
//! could miss the other. The table has a lock of its own, taken to read for a lookup and to write to add and remove
//! (`contexts.rs` says how an arrival for an unknown context is kept). Below that level there is no lock.
//!
//! Called by the protocols and the plugin. Tests: `tests/`, and in each file. `cargo bench -p ibex --bench matching`.

mod contexts;
mod index;
mod outcome;
mod pattern;
mod posted;
mod slab;
#[cfg(test)]
mod tests;
mod threshold;
mod unexpected;

pub use contexts::{Contexts, Refused};
pub use outcome::{Arrival, Message, MessageHandle, Posting, ReceiveHandle, Remains, Searched};
pub use pattern::{ANY_SOURCE, ANY_TAG, Envelope, Pattern};

use posted::Posted;
use slab::NONE;
use unexpected::Unexpected;

/// The posted receives and unexpected messages of a communicator.
#[derive(Debug)]
pub struct Matching<R, U> {
    posted: Posted<R>,
    unexpected: Unexpected<U>,
}

impl<R: Copy, U> Default for Matching<R, U> {
    fn default() -> Self {
        Matching::new()
    }
}

impl<R: Copy, U> Matching<R, U> {
    /// Of a communicator with empty queues.
    #[must_use]
    pub const fn new() -> Self {
        Matching { posted: Posted::new(), unexpected: Unexpected::new() }
    }

    /// A receive is posted: it has the first unexpected message that it takes, or waits.
    #[inline]
    pub fn post(&mut self, pattern: Pattern, request: R) -> Posting<U> {
        let Searched { found, attempts } = self.search_unexpected(pattern);
        match found {
            Some(message) => Posting::Matched { message, attempts },
            None => Posting::Inserted { handle: self.insert_posted(pattern, request), attempts },
        }
    }

    /// A message arrives: it goes to the first receive that takes it, or waits. `message` is called
    /// only if it waits.
    #[inline]
    pub fn arrive(&mut self, envelope: Envelope, message: impl FnOnce() -> U) -> Arrival<R> {
        let Searched { found, attempts } = self.search_posted(envelope);
        match found {
            Some(request) => Arrival::Matched { request, attempts },
            None => Arrival::Inserted { handle: self.insert_unexpected(envelope, message()), attempts },
        }
    }

    /// The first part of [`Matching::post`]: takes out the first message that the pattern takes.
    #[inline]
    pub fn search_unexpected(&mut self, pattern: Pattern) -> Searched<Message<U>> {
        let (taken, attempts) = self.unexpected.take(pattern);
        Searched { found: taken.map(|(envelope, message)| Message { envelope, message }), attempts }
    }

    /// The second part of [`Matching::post`], after a search that found nothing and with nothing between.
    #[inline]
    pub fn insert_posted(&mut self, pattern: Pattern, request: R) -> ReceiveHandle {
        ReceiveHandle(self.posted.insert(pattern, request))
    }

    /// The first part of [`Matching::arrive`]: takes out the first receive that takes the message.
    #[inline]
    pub fn search_posted(&mut self, envelope: Envelope) -> Searched<R> {
        let (found, attempts) = self.posted.take(envelope);
        Searched { found, attempts }
    }

    /// The second part of [`Matching::arrive`], after a search that found nothing and with nothing between.
    #[inline]
    pub fn insert_unexpected(&mut self, envelope: Envelope, message: U) -> MessageHandle {
        MessageHandle(self.unexpected.insert(envelope, message))
    }

    /// Shows the message that a receive posted now would have.
    pub fn probe(&mut self, pattern: Pattern) -> Searched<Message<&U>> {
        let (at, attempts) = self.unexpected.find(pattern);
        let found = self.unexpected.get(at).map(|(envelope, message)| Message { envelope, message });
        Searched { found, attempts }
    }

    /// Takes out the message that a receive posted now would have: no search finds it any more, its handle leads to it
    /// ([`Matching::take`]).
    pub fn matched_probe(&mut self, pattern: Pattern) -> Searched<Message<MessageHandle>> {
        let (at, attempts) = self.unexpected.find(pattern);
        let aside = if at == NONE { None } else { self.unexpected.set_aside(at) };
        let found = aside.map(|(envelope, handle)| Message { envelope, message: MessageHandle(handle) });
        Searched { found, attempts }
    }

    /// Takes the message with this handle, wherever it waits: for the receive of a matched probe, or because its sender
    /// has withdrawn it. `None` if it has been taken.
    pub fn take(&mut self, handle: MessageHandle) -> Option<Message<U>> {
        let at = self.unexpected.resolve(handle.0)?;
        self.unexpected.take_at(at).map(|(envelope, message)| Message { envelope, message })
    }

    /// The message with this handle, wherever it waits: more of it may have arrived. `None` if it has been taken.
    pub fn message_mut(&mut self, handle: MessageHandle) -> Option<&mut U> {
        let at = self.unexpected.resolve(handle.0)?;
        self.unexpected.get_mut(at)
    }

    /// Takes the posted receive of this request back. False: it has been matched or cancelled. Of a handle that another
    /// communicator gave nothing is known here, so the request is compared as well.
    pub fn cancel(&mut self, handle: ReceiveHandle, request: R) -> bool
    where
        R: PartialEq,
    {
        self.posted.cancel(handle.0, request)
    }

    /// How many receives are posted.
    #[must_use]
    pub const fn posted(&self) -> u32 {
        self.posted.len()
    }

    /// How many messages are unexpected, without those of matched probes.
    #[must_use]
    pub const fn unexpected(&self) -> u32 {
        self.unexpected.len()
    }

    /// The communicator goes; this is what waited in it.
    #[must_use]
    pub fn into_remains(self) -> Remains<R, U> {
        let receives = self.posted.requests().collect();
        let messages = self.unexpected.into_messages().into_iter();
        let messages = messages.map(|(envelope, message)| Message { envelope, message }).collect();
        Remains { receives, messages }
    }
}
