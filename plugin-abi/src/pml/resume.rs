// SPDX-License-Identifier: MIT OR Apache-2.0
//! Continues pending sends: there is room, an earlier message was answered, or the receiver asks for more or lets go.
//!
//! Called by `incoming`, `reading`, `pieces`, `progress` and `local`. Grade: pending. Threads: the one that has entered
//! the PML. Tests: `pml/tests.rs`, and `unexpected_memory.c` in `hw-tests/mpi`.

use std::ptr::NonNull;

use engine::messenger::flow_control::{Way, Word};
use engine::messenger::header::Header;
use engine::messenger::link::{Account, Link};
use ibex_ffi::openmpi::release;

use super::finish::finish;
use super::instance::{Pml, Rail, State};
use super::request::{Request, Transfer};
use super::{protocol, rails, routing, token};

/// Sends as many pending messages of a communicator as flow control permits. Tells the peer if some are left, unless it
/// has been told since it last asked for more.
fn resume(pml: &Pml, state: &mut State, account: Account, context: u32) {
    while let Some((request, way)) = state.flow.outgoing.next(account, context) {
        // SAFETY: P1: `next` returns a send that was pending, so it is not finished.
        unsafe { go_on(pml, state, request, way) };
    }
    if state.flow.outgoing.tells(account, context) {
        routing::control(pml, state, account.0, &Header::Pending(context));
    }
}

/// Sends a message that was pending. Returns false if it finds no room.
unsafe fn go_on(pml: &Pml, state: &mut State, request: NonNull<Request>, way: Way) -> bool {
    // SAFETY: P1: the send is not finished, so Open MPI's communicator is alive; P3.
    unsafe {
        if (*(*request.as_ptr()).comm()).c_pml_comm.is_null() {
            // `MPI_Finalize` has removed the communicator, so nobody waits for this send.
            finish(state, request);
            return true;
        }
        // The peer may have another home now.
        let link = &mut (*request.as_ptr()).core.link;
        *link = rails::route(pml, state, *link);
        protocol::go(pml, state, request, way)
    }
}

/// Notes that it is the turn of pending messages by this link. Sends them when nothing has arrived any more
/// ([`super::progress::leave`]).
pub(crate) fn has_turn(state: &mut State, link: Link) {
    state.flow.turns.push(link);
    state.has_more = true;
}

/// Sends pending messages by a link whose turn it is, as many as find room.
pub(crate) fn in_turn(pml: &Pml, state: &mut State, link: Link) {
    // If the peer has another home now, its messages have their turn there.
    if rails::route(pml, state, link) != link {
        return;
    }
    let account = rails::account(pml, state, link);
    // By shared memory there is no port.
    let port = || pml.rails().get(link.rail()).and_then(Rail::enter);
    if let Some(mut port) = port() {
        port.begin_turn(link.to());
    }
    while let Some((request, way)) = state.flow.outgoing.next_in_turn(account) {
        // SAFETY: P1: `next_in_turn` returns a send that was pending, so it is not finished.
        if !unsafe { go_on(pml, state, request, way) } {
            return;
        }
    }
    state.flow.outgoing.has_room(account);
    if let Some(mut port) = port() {
        port.end_turn(link.to(), token::turn());
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
