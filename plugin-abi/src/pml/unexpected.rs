// SPDX-License-Identifier: MIT OR Apache-2.0
//! A message that no receive was there for is kept, and its sender held back beyond the bound.
//!
//! Called by `incoming`, and by `oneself` for what this process sends to itself. Grade: pending. Threads: who has
//! entered the PML, and no port. Tests: `unexpected_memory.c` in `hw-tests/mpi`.

use engine::matching::Envelope;

use super::arrived::Arrived;
use super::communicator::Communicator;
use super::instance::{Pml, State};
use super::link::Link;
use super::{flow, peer, watch};

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
