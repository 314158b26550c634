// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unexpected messages: stores a message that no receive matched, and holds its sender back beyond the bound.
//!
//! Called by `incoming`, and by `oneself` for messages of this process. Grade: pending; long messages allocate.
//! Threads: the one that has entered the PML, and no port. Tests: below; `unexpected_memory.c` in `hw-tests/mpi`.

use engine::messenger::header::{Memory, PortKey};
use engine::messenger::link::Link;
use engine::messenger::matching::Envelope;
use engine::messenger::transfer_id::TransferId;

use super::communicator::Communicator;
use super::instance::{Pml, State};
use super::watch::{self, Came};
use super::{flow, peer};

pub(crate) struct Arrived {
    pub(crate) from: Link,
    /// Number that tools know the message by; 0 before its first event.
    pub(crate) id: u64,
    pub(crate) body: Body,
}

/// Longest data that is stored without an allocation, bytes.
pub(crate) const SHORT: usize = 40;

pub(crate) enum Body {
    /// All the data.
    Short { length: u8, bytes: [u8; SHORT] },
    /// All the data.
    Whole { bytes: Box<[u8]> },
    /// All the data. The sender waits until the match is acknowledged.
    Synchronous { bytes: Box<[u8]>, sender: TransferId },
    /// An announcement. The data can be read, unless its address is 0.
    Announced { sender: TransferId, memory: Memory },
    /// An announcement with the keys of several ports.
    AnnouncedKeyed { sender: TransferId, memory: Memory, keys: Box<[PortKey]> },
}

impl Arrived {
    pub(crate) fn length(&self) -> usize {
        match &self.body {
            Body::Short { length, .. } => usize::from(*length),
            Body::Whole { bytes } | Body::Synchronous { bytes, .. } => bytes.len(),
            Body::Announced { memory, .. } | Body::AnnouncedKeyed { memory, .. } => memory.length as usize,
        }
    }

    pub(crate) fn came(&self) -> Came {
        let all = self.length();
        let is_announced = matches!(self.body, Body::Announced { .. } | Body::AnnouncedKeyed { .. });
        Came { all, here: if is_announced { 0 } else { all } }
    }

    /// Number of bytes that are allocated for the message.
    pub(crate) fn allocated(&self) -> usize {
        match &self.body {
            Body::Whole { bytes } | Body::Synchronous { bytes, .. } => bytes.len(),
            Body::AnnouncedKeyed { keys, .. } => size_of_val::<[PortKey]>(keys),
            Body::Short { .. } | Body::Announced { .. } => 0,
        }
    }
}

/// Stores a message that no receive matched. If `sender` returns [`Link::UNKNOWN`] (shared memory, or stored early),
/// looks the rank up in the communicator.
pub(crate) unsafe fn insert(
    pml: &Pml,
    state: &mut State,
    communicator: &Communicator,
    (envelope, message): (Envelope, Arrived),
    sender: impl FnOnce() -> Option<Link>,
) {
    flow::keep(pml, state, &message, |state| match sender()? {
        // SAFETY: P1: `communicator` is alive, as this function requires.
        Link::UNKNOWN => unsafe { peer::known(state, communicator.comm, envelope.source()) },
        from => Some(from),
    });
    // SAFETY: P1: `communicator` is alive, as this function requires; P3.
    unsafe {
        watch::insert_unexpected(communicator, envelope, message);
        if communicator.has_posted() {
            flow::found_nothing(pml, state, communicator.context);
        }
    }
}

/// Stores a message whose communicator this process has not added yet. An unknown sender can be held back only when the
/// communicator is added.
#[cold]
pub(crate) fn keep_early(
    pml: &Pml,
    state: &mut State,
    context: u32,
    (envelope, message): (Envelope, Arrived),
    sender: impl FnOnce() -> Option<Link>,
) {
    flow::keep(pml, state, &message, |_| sender().filter(|from| *from != Link::UNKNOWN));
    state.contexts.keep(context, (envelope, message));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_a_message_fits_a_cache_line() {
        assert!(size_of::<Arrived>() <= 64, "{}", size_of::<Arrived>());
    }
}
