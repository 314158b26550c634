// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the operations of [`super::Matching`] say has happened, so that their caller can tell a tool, in order.
//!
//! Nothing calls back. An operation on a queue is one search or one insertion; `post` and `arrive` are one of each, and
//! their parts are public, so that a caller whose tools want times reads a clock between them. In the words of PERUSE
//! 2.0 (section 4.1, its diagram), what each outcome stands for:
//!
//! | operation | outcome | events, in order |
//! |---|---|---|
//! | `search_unexpected` | found | `SEARCH_UNEX_Q_BEGIN`, `SEARCH_UNEX_Q_END`, `MSG_REMOVE_FROM_UNEX_Q`, `REQ_MATCH_UNEX` |
//! | | not | `SEARCH_UNEX_Q_BEGIN`, `SEARCH_UNEX_Q_END` |
//! | `insert_posted` | | `REQ_INSERT_IN_POSTED_Q` |
//! | `search_posted` | found | `SEARCH_POSTED_Q_BEGIN`, `SEARCH_POSTED_Q_END`, `REQ_REMOVE_FROM_POSTED_Q`, `MSG_MATCH_POSTED_REQ` |
//! | | not | `SEARCH_POSTED_Q_BEGIN`, `SEARCH_POSTED_Q_END` |
//! | `insert_unexpected` | | `MSG_INSERT_IN_UNEX_Q` |
//! | `probe` | | `SEARCH_UNEX_Q_BEGIN`, `SEARCH_UNEX_Q_END` |
//! | `matched_probe` | found | as `search_unexpected`, but `REQ_MATCH_UNEX` when its handle is used |
//! | `cancel` | found | `REQ_REMOVE_FROM_POSTED_Q` |
//!
//! Path: hot, plain values. Tests: `tests/`.

use super::pattern::Envelope;
use super::slab::Handle;

/// The handle of a posted receive, to cancel it by. It is refused once the receive has been matched or cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReceiveHandle(pub(super) Handle);

/// The handle of an unexpected message. It is refused once the message has been taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageHandle(pub(super) Handle);

macro_rules! kept_as_bits {
    ($($handle:ident)*) => {$(
        impl $handle {
            /// As a number to keep in a request. 0 is no handle's.
            #[must_use]
            #[inline]
            pub const fn bits(self) -> u64 {
                self.0.bits()
            }

            /// The handle with these bits. Those that are no handle's are refused wherever they are used.
            #[must_use]
            #[inline]
            pub const fn from_bits(bits: u64) -> Self {
                $handle(Handle::from_bits(bits))
            }
        }
    )*};
}

kept_as_bits!(ReceiveHandle MessageHandle);

/// How a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Searched<T> {
    /// What was found.
    pub found: Option<T>,
    /// How many entries were compared.
    pub attempts: u32,
}

/// An unexpected message that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<U> {
    /// Its sender and tag.
    pub envelope: Envelope,
    /// What the caller gave, or a handle of it.
    pub message: U,
}

/// What became of a receive that was posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Posting<U> {
    /// A message had arrived for it.
    Matched {
        /// The message, which is the caller's again.
        message: Message<U>,
        /// Unexpected messages looked at.
        attempts: u32,
    },
    /// It waits.
    Inserted {
        /// Its name.
        handle: ReceiveHandle,
        /// Unexpected messages looked at.
        attempts: u32,
    },
}

/// What became of a message that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Arrival<R> {
    /// A receive had been posted for it.
    Matched {
        /// The receive.
        request: R,
        /// Posted receives looked at.
        attempts: u32,
    },
    /// It waits, unexpected.
    Inserted {
        /// Its name.
        handle: MessageHandle,
        /// Posted receives looked at.
        attempts: u32,
    },
}

/// What is left of a communicator that goes.
#[derive(Debug)]
pub struct Remains<R, U> {
    /// Receives that nothing came for.
    pub receives: Vec<R>,
    /// Messages that nobody received: unexpected ones, and those of matched probes whose handles were not used.
    pub messages: Vec<Message<U>>,
}
