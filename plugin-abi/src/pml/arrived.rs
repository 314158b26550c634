// SPDX-License-Identifier: MIT OR Apache-2.0
//! A message that no receive was there for: what is kept of it.
//!
//! Grade: pending. Plain data, in the queues of `engine::matching`.

use engine::protocol::header::Place;
use engine::protocol::transfers::TransferId;

use super::link::Link;

/// An unexpected message.
pub(crate) struct Arrived {
    pub(crate) from: Link,
    pub(crate) body: Body,
}

/// What came of a message.
pub(crate) enum Body {
    /// All its bytes.
    Whole { bytes: Box<[u8]> },
    /// All its bytes, and its sender waits to hear that it was matched.
    Synchronous { bytes: Box<[u8]>, sender: TransferId },
    /// That there is one.
    Announced { sender: TransferId, length: u64, place: Option<Place> },
}

impl Arrived {
    /// How long the message is, bytes.
    pub(crate) fn length(&self) -> usize {
        match &self.body {
            Body::Whole { bytes } | Body::Synchronous { bytes, .. } => bytes.len(),
            Body::Announced { length, .. } => *length as usize,
        }
    }
}
