// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends that pended go on: because one before them is answered, the receiver asks for more, or holds back no longer.
//!
//! The rules are `engine::protocol::flow_control`'s. Called by `incoming`, `reading` and `pieces`. Grade: pending. Threads: who
//! has entered the PML. Tests: `unexpected_memory.c` in `hw-tests/mpi`.

use engine::protocol::flow_control::Word;
use engine::protocol::header::Header;

use super::communicator::Communicator;
use super::instance::{Pml, State};
use super::link::Link;
use super::request::{Request, Transfer};
use super::{protocol, transmit};

/// Lets sends go that pended, as far as they may.
fn resume(pml: &Pml, state: &mut State, link: Link, context: u32) {
    while let Some((request, way)) = state.flow.outgoing.next(link, context) {
        // SAFETY: a send that pended, and was not begun.
        unsafe { protocol::go(pml, state, request, way) };
    }
}

/// To whom and in which communicator a send goes, if it was announced and is counted.
///
/// # Safety
/// A send of the PML's that is not finished.
pub(crate) unsafe fn counted(request: &Request) -> Option<(Link, u32)> {
    if !matches!(request.transfer, Transfer::Announced { counted: true, .. }) {
        return None;
    }
    // SAFETY: this function's rule; its communicator is alive.
    Some((request.link, unsafe { Communicator::of(request.comm()) }.context))
}

/// A message that was announced is answered: another can be, if it was counted.
pub(crate) fn answered(pml: &Pml, state: &mut State, counted: Option<(Link, u32)>) {
    if let Some((link, context)) = counted {
        state.flow.outgoing.answered(link, context);
        resume(pml, state, link, context);
    }
}

/// The peer asks for more of a communicator.
pub(crate) fn more(pml: &Pml, state: &mut State, link: Link, context: u32) {
    let tells = state.flow.outgoing.more(link, context);
    resume(pml, state, link, context);
    if tells {
        transmit::control(pml, state, link, &Header::Pending(context));
    }
}

/// The peer says whether short messages may be sent at once.
pub(crate) fn heard(pml: &Pml, state: &mut State, link: Link, word: Word) {
    let Some(pending) = state.flow.outgoing.heard(link, word) else { return };
    if word.holds_back {
        for (_, communicator) in state.contexts.iter() {
            // SAFETY: in the table, so alive.
            unsafe { communicator.as_ref() }.mark(link);
        }
    }
    for context in pending {
        resume(pml, state, link, context);
    }
}
