// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends that pended go on: because one before them is answered or has gone, the receiver asks for more, or holds back
//! no longer.
//!
//! The rules are `engine::protocol::flow_control`'s. Called by `incoming`, `reading`, `pieces`, `progress` and `local`.
//! Grade: pending. Threads: who has entered the PML. Tests: `unexpected_memory.c` in `hw-tests/mpi`.

use std::ptr::NonNull;

use engine::protocol::flow_control::{Way, Word};
use ibex_ffi::openmpi::release;

use super::bounds::RECORD;
use super::finish::finish;
use super::instance::{Pml, State};
use super::link::{Account, Link};
use super::request::{Request, Transfer};
use super::transfers::Bytes;
use super::{flow, passage, protocol, rails, watch};

/// Lets sends go that pended, as far as they may.
fn resume(pml: &Pml, state: &mut State, account: Account, context: u32) {
    while let Some((request, way)) = state.flow.outgoing.next(account, context) {
        // SAFETY: P1: a send that pended until now.
        unsafe { go_on(pml, state, request, way) };
    }
    flow::tell(pml, state, account, context);
}

/// # Safety
/// P1: a send that pended, and was not begun.
unsafe fn go_on(pml: &Pml, state: &mut State, request: NonNull<Request>, way: Way) {
    // SAFETY: P1: a send that is not finished, so that Open MPI's communicator is alive; P3.
    unsafe {
        if (*(*request.as_ptr()).comm()).c_pml_comm.is_null() {
            // MPI ends, and nobody waits for it.
            finish(state, request);
        } else {
            // The peer's messages may go by another port by now.
            (*request.as_ptr()).link = rails::route(pml, state, (*request.as_ptr()).link);
            protocol::go(pml, state, request, way);
        }
    }
}

/// The message of a send that waited for the port has gone: the send is finished, and others may go.
///
/// # Safety
/// P1: a send of which nothing else is under way.
pub(crate) unsafe fn message_sent(pml: &Pml, state: &mut State, request: NonNull<Request>) {
    // SAFETY: P1: a send that is not finished, and of which nothing is under way; P3.
    let (link, length) = unsafe {
        let of = ((*request.as_ptr()).link, (*request.as_ptr()).extent.length);
        watch::ends_by(&mut *request.as_ptr(), Bytes::None.completed(), |r| Some(passage::sent(pml, state, r, true)));
        finish(state, request);
        of
    };
    let account = rails::account(pml, state, link);
    if state.flow.outgoing.went(account, length as u64 + RECORD) {
        while let Some((request, way)) = state.flow.outgoing.next_to(account) {
            // SAFETY: P1: a send that pended until now.
            unsafe { go_on(pml, state, request, way) };
        }
    }
}

/// To whom and in which communicator a send goes, if it was announced and is counted.
///
/// # Safety
/// P1: a send that is not finished.
pub(crate) unsafe fn counted(request: &Request) -> Option<(Link, u32)> {
    if !matches!(request.transfer, Transfer::Announced { counted: true, .. }) {
        return None;
    }
    // SAFETY: P1: not finished, so that Open MPI's communicator is there, also when the PML's has gone.
    Some((request.link, unsafe { release::context(request.comm()) }))
}

/// A message that was announced is answered: another can be, if it was counted.
pub(crate) fn answered(pml: &Pml, state: &mut State, counted: Option<(Link, u32)>) {
    if let Some((link, context)) = counted {
        let account = rails::account(pml, state, link);
        state.flow.outgoing.answered(account, context);
        resume(pml, state, account, context);
    }
}

/// The peer asks for more of a communicator.
pub(crate) fn more(pml: &Pml, state: &mut State, link: Link, context: u32) {
    let account = rails::account(pml, state, link);
    state.flow.outgoing.more(account, context);
    resume(pml, state, account, context);
}

/// The peer says whether short messages may be sent at once.
pub(crate) fn heard(pml: &Pml, state: &mut State, link: Link, word: Word) {
    let account = rails::account(pml, state, link);
    let Some(pending) = state.flow.outgoing.heard(account, word) else { return };
    if word.holds_back {
        mark(pml, state, account);
    }
    for context in pending {
        resume(pml, state, account, context);
    }
}

/// Has short messages to a peer look for their way, in the communicators in which they may.
fn mark(pml: &Pml, state: &mut State, account: Account) {
    let links = rails::in_communicators(pml, state, account);
    for (context, rank) in links.iter().flat_map(|link| state.flow.holders.of(*link)) {
        let Some(communicator) = state.contexts.get(context) else { continue };
        // Its home may have been another one when it was found.
        for link in &links {
            // SAFETY: in state.contexts, so alive; P3.
            unsafe { communicator.as_ref() }.mark(rank, *link);
        }
    }
}
