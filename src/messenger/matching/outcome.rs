// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results of the operations of [`super::Matching`]. From each its caller can raise these events of PERUSE 2.0, in
//! order (section 4.1, its diagram):
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
//! Made by [`super::Matching`], read by `receive/queues.rs`. Grade: hot. Threads: plain data. Tests: `tests/`.

use super::Envelope;
use super::slab::Handle;

/// The handle of a posted receive, to cancel it. It is refused once the receive has been matched or cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReceiveHandle(pub(super) Handle);

/// The handle of an unexpected message. It is refused once the message has been taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageHandle(pub(super) Handle);

macro_rules! kept_as_bits {
    ($($handle:ident)*) => {$(
        impl $handle {
            /// Returns the handle as a number for a request to store. No handle is 0.
            #[inline]
            pub const fn bits(self) -> u64 {
                self.0.bits()
            }

            /// Returns the handle with these bits. Operations refuse bits that were never a handle's.
            #[inline]
            pub const fn from_bits(bits: u64) -> Self {
                $handle(Handle::from_bits(bits))
            }
        }
    )*};
}

kept_as_bits!(ReceiveHandle MessageHandle);

/// The result of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Searched<T> {
    /// The entry found.
    pub found: Option<T>,
    /// Number of entries compared.
    pub attempts: u32,
}

/// An unexpected message that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<U, E = Envelope> {
    /// The envelope: sender and tag.
    pub envelope: E,
    /// The caller's message, or a handle of it.
    pub message: U,
}

/// The content of a communicator that ended.
#[derive(Debug)]
pub struct Remains<R, U, E = Envelope> {
    /// Receives without a message.
    pub receives: Vec<R>,
    /// Messages without a receive: unexpected ones, and those of matched probes whose handles were not used.
    pub messages: Vec<Message<U, E>>,
}
