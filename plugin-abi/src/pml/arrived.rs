// SPDX-License-Identifier: MIT OR Apache-2.0
//! A message that no receive was there for: what is kept of it.
//!
//! Grade: pending; a longer one allocates. Plain data, in the queues of `engine::matching`. Tests: below.

use engine::protocol::header::{Memory, PortKey};
use engine::protocol::transfers::TransferId;

use super::link::Link;
use super::watch::Came;

/// An unexpected message.
pub(crate) struct Arrived {
    pub(crate) from: Link,
    /// What tools know it by; 0: they have not been told of it.
    pub(crate) id: u64,
    pub(crate) body: Body,
}

/// Bytes that are kept without an allocation.
pub(crate) const SHORT: usize = 40;

/// What came of a message.
pub(crate) enum Body {
    /// All its bytes, and they are few.
    Short { length: u8, bytes: [u8; SHORT] },
    /// All its bytes.
    Whole { bytes: Box<[u8]> },
    /// All its bytes, and its sender waits to hear that it was matched.
    Synchronous { bytes: Box<[u8]>, sender: TransferId },
    /// That there is one, and where it can be read, unless that is at address 0.
    Announced { sender: TransferId, memory: Memory },
    /// The same, with the keys of further ports.
    AnnouncedKeyed { sender: TransferId, memory: Memory, keys: Box<[PortKey]> },
}

impl Arrived {
    /// How long the message is, bytes.
    pub(crate) fn length(&self) -> usize {
        match &self.body {
            Body::Short { length, .. } => usize::from(*length),
            Body::Whole { bytes } | Body::Synchronous { bytes, .. } => bytes.len(),
            Body::Announced { memory, .. } | Body::AnnouncedKeyed { memory, .. } => memory.length as usize,
        }
    }

    /// How long the message is, and what came of it.
    pub(crate) fn came(&self) -> Came {
        let all = self.length();
        let is_announced = matches!(self.body, Body::Announced { .. } | Body::AnnouncedKeyed { .. });
        Came { all, here: if is_announced { 0 } else { all } }
    }

    /// Bytes of memory that were allocated for it.
    pub(crate) fn allocated(&self) -> usize {
        match &self.body {
            Body::Whole { bytes } | Body::Synchronous { bytes, .. } => bytes.len(),
            Body::AnnouncedKeyed { keys, .. } => size_of_val::<[PortKey]>(keys),
            Body::Short { .. } | Body::Announced { .. } => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_a_message_fits_a_cache_line() {
        assert!(size_of::<Arrived>() <= 64, "{}", size_of::<Arrived>());
    }
}
