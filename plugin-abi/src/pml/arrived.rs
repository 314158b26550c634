// SPDX-License-Identifier: MIT OR Apache-2.0
//! A message that no receive was there for: what is kept of it, and its sender held back beyond the bound.
//!
//! Called by `incoming`, and by `oneself` for what this process sends to itself. What is kept is in the queues of
//! `engine::matching`. Grade: pending; a longer one allocates. Threads: who has entered the PML, and no port. Tests: below;
//! `unexpected_memory.c` in `hw-tests/mpi`.

use engine::matching::Envelope;
use engine::protocol::header::{Memory, PortKey};
use engine::protocol::transfers::TransferId;

use super::communicator::Communicator;
use super::instance::{Pml, State};
use super::link::Link;
use super::watch::{self, Came};
use super::{flow, peer};

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

/// Keeps a message that no receive took. One that shared memory brought, or that was kept before, may not say who sent
/// it; its communicator does.
///
/// # Safety
/// A communicator that is alive.
pub(crate) unsafe fn insert(
    pml: &Pml,
    state: &mut State,
    communicator: &Communicator,
    (envelope, message): (Envelope, Arrived),
    sender: impl FnOnce() -> Option<Link>,
) {
    flow::keep(pml, state, &message, |state| match sender()? {
        // SAFETY: the communicator is alive.
        Link::UNKNOWN => unsafe { peer::known(state, communicator.comm, envelope.source()) },
        from => Some(from),
    });
    // SAFETY: the communicator is alive; P3.
    unsafe {
        watch::insert_unexpected(communicator, envelope, message);
        if communicator.has_posted() {
            flow::found_nothing(pml, state, communicator.context);
        }
    }
}

/// Keeps a message whose communicator this process has not added yet. Who sent it and does not say so is not held back
/// for it: it is when the communicator is added, which this process is about to do.
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
