// SPDX-License-Identifier: MIT OR Apache-2.0
//! Continues pending sends: an earlier message was answered or sent, or the receiver asks for more or lets go.
//!
//! Called by `incoming`, `reading`, `pieces`, `progress` and `local`. Grade: pending. Threads: the one that has entered
//! the PML. Tests: `unexpected_memory.c` in `hw-tests/mpi`.

use std::ptr::NonNull;

use engine::messenger::flow_control::state::RECORD;
use engine::messenger::flow_control::{Way, Word};
use engine::messenger::link::{Account, Link};
use ibex_ffi::openmpi::release;

use super::finish::finish;
use super::instance::{Pml, State};
use super::request::{Request, Transfer};
use super::transfers::Bytes;
use super::{flow, passage, protocol, rails, watch};

/// Sends as many pending messages of a communicator as flow control permits.
fn resume(pml: &Pml, state: &mut State, account: Account, context: u32) {
    while let Some((request, way)) = state.flow.outgoing.next(account, context) {
        // SAFETY: P1: `next` returns a send that was pending, so it is not finished.
        unsafe { go_on(pml, state, request, way) };
    }
    flow::tell(pml, state, account, context);
}

unsafe fn go_on(pml: &Pml, state: &mut State, request: NonNull<Request>, way: Way) {
    // SAFETY: P1: the send is not finished, so Open MPI's communicator is alive; P3.
    unsafe {
        if (*(*request.as_ptr()).comm()).c_pml_comm.is_null() {
            // `MPI_Finalize` has removed the communicator, so nobody waits for this send.
            finish(state, request);
        } else {
            // The peer may have another home now.
            let link = &mut (*request.as_ptr()).core.link;
            *link = rails::route(pml, state, *link);
            protocol::go(pml, state, request, way);
        }
    }
}

/// Finishes a send whose message waited and has been sent, and continues pending ones.
///
/// # Safety
/// P1: a send that is not finished and has no other transfer in progress.
pub(crate) unsafe fn message_sent(pml: &Pml, state: &mut State, request: NonNull<Request>) {
    // SAFETY: P1: the send is not finished and has no other transfer in progress; P3.
    let (link, length) = unsafe {
        let r = &mut *request.as_ptr();
        let of = (r.core.link, r.core.extent.length);
        watch::ends_by(r, Bytes::None.completed(), |r| Some(passage::sent(pml, state, r, true)));
        finish(state, request);
        of
    };
    let account = rails::account(pml, state, link);
    if state.flow.outgoing.went(account, length as u64 + RECORD) {
        while let Some((request, way)) = state.flow.outgoing.next_to(account) {
            // SAFETY: P1: `next_to` returns a send that was pending, so it is not finished.
            unsafe { go_on(pml, state, request, way) };
        }
    }
}

/// Returns link and communicator of a send that was announced and counts towards the window of flow control.
pub(crate) unsafe fn counted(request: &Request) -> Option<(Link, u32)> {
    if !matches!(request.core.transfer, Transfer::Announced { counted: true, .. }) {
        return None;
    }
    // SAFETY: P1: the send is not finished, so Open MPI's communicator is alive, even if the PML's has gone.
    Some((request.core.link, unsafe { release::context(request.comm()) }))
}

/// Continues pending sends after the answer to an announced message that was `counted`.
pub(crate) fn answered(pml: &Pml, state: &mut State, counted: Option<(Link, u32)>) {
    if let Some((link, context)) = counted {
        let account = rails::account(pml, state, link);
        state.flow.outgoing.answered(account, context);
        resume(pml, state, account, context);
    }
}

/// Continues pending sends because the peer asks for more messages of a communicator.
pub(crate) fn more(pml: &Pml, state: &mut State, link: Link, context: u32) {
    let account = rails::account(pml, state, link);
    state.flow.outgoing.more(account, context);
    resume(pml, state, account, context);
}

/// Notes that the peer starts or stops holding this process back.
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

/// Marks the links to a peer in all communicators, so that short messages to it take the slow path (`flow`).
fn mark(pml: &Pml, state: &mut State, account: Account) {
    let links = rails::in_communicators(pml, state, account);
    for (context, rank) in links.iter().flat_map(|link| state.flow.holders.of(*link)) {
        let Some(communicator) = state.contexts.get(context) else { continue };
        // The communicator may have stored an earlier home of the peer.
        for link in &links {
            // SAFETY: P1: in `state.contexts`, so alive; P3.
            unsafe { communicator.as_ref() }.mark(rank, *link);
        }
    }
}
