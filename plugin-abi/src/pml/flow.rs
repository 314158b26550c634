// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow control of Open MPI's sends: how each goes, and when those that pend are sent. The accounts and the messages
//! between processes are `engine::messenger::flow_control`.
//!
//! **Marks.** A link to a peer that holds this process back, or to which sends pend, is marked in the communicators
//! ([`Link::marked`]). The fast paths take no marked link, so each message comes to [`way`], which stores the link
//! anew, marked or not. A look-up stores a link only if none is stored yet (`Communicator::set_found`). When a peer
//! holds this process back, all its links are marked, because a communicator may still have an earlier home.
//!
//! **Shared memory.** These peers have accounts as well. An eager message by shared memory names only its sender's
//! rank; `incoming` looks the process up in the communicator once the bound is exceeded.
//!
//! Called by `protocol`, `progress`, `local` and `host`. Grade: pending. Threads: the one that has entered the PML, and
//! no port. Tests: `pml/tests.rs`, and `unexpected_memory.c` in `hw-tests/mpi`.

use engine::counters::add_shared;
use engine::messenger::flow_control::Way;
use engine::messenger::link::{Account, Link};

use super::communicator::Communicator;
use super::finish::finish;
use super::handle::Handle;
use super::instance::{Pml, Rail, State};
use super::request::Core;
use super::{protocol, rails, routing, token};

/// Decides how a send goes while flow control limits a peer, or the communicator's link is old; stores the link.
#[cold]
#[inline(never)]
pub(crate) fn way(pml: &Pml, state: &mut State, communicator: &Communicator, request: Handle) -> Way {
    let context = communicator.context;
    let &mut Core { link, tag, peer, .. } = state.requests.core(request);
    let account = rails::account(pml, state, link);
    let way = state.messenger.flow.outgoing.way(account, context, tag);
    let passes = way != Way::Pends && state.messenger.flow.outgoing.may_pass(account, context);
    let link = rails::in_communicator(pml, link);
    communicator.set_link(peer, if passes { link } else { link.marked() });
    if let Way::Announced { .. } = way {
        add_shared(&state.messenger.flow.shown.announced_held_back, 1);
    }
    way
}

/// Queues a send that found no room in front of the pending ones, until it is their turn.
#[cold]
#[inline(never)]
pub(crate) fn found_no_room(pml: &Pml, state: &mut State, communicator: &Communicator, request: Handle) {
    let &mut Core { link, tag, peer, .. } = state.requests.core(request);
    communicator.set_link(peer, rails::in_communicator(pml, link).marked());
    let account = rails::account(pml, state, link);
    state.messenger.flow.outgoing.found_no_room(account, communicator.context, tag, request);
    routing::queue_turn(pml, state, link);
}

/// Sends a message that was pending. Returns false if it finds no room.
pub(crate) fn go_on(pml: &Pml, state: &mut State, request: Handle, way: Way) -> bool {
    let r = state.requests.get(request);
    let link = r.core.link;
    // SAFETY: P1: the send pended, so it is not finished, and Open MPI's communicator is alive.
    if unsafe { (*r.comm()).c_pml_comm.is_null() } {
        // `MPI_Finalize` has removed the communicator, so nobody waits for this send.
        finish(state, request);
        return true;
    }
    // The peer may have another home now.
    let link = rails::route(pml, state, link);
    state.requests.core(request).link = link;
    protocol::go(pml, state, request, way)
}

/// Notes that it is the turn of pending messages by this link. [`super::progress::leave`] sends them once nothing more
/// arrives.
pub(crate) fn has_turn(state: &mut State, link: Link) {
    state.messenger.flow.turns.push(link);
    state.has_more = true;
}

/// Sends pending messages by a link whose turn it is, as many as find room.
pub(crate) fn in_turn(pml: &Pml, state: &mut State, link: Link) {
    // If the peer has another home now, its messages have their turn there.
    if rails::route(pml, state, link) != link {
        return;
    }
    let account = rails::account(pml, state, link);
    // A link by shared memory has no port.
    let port = || pml.rails().get(link.rail()).and_then(Rail::enter);
    if let Some(mut port) = port() {
        port.begin_turn(link.to());
    }
    while let Some((request, way)) = state.messenger.flow.outgoing.next_in_turn(account) {
        if !go_on(pml, state, request, way) {
            return;
        }
    }
    state.messenger.flow.outgoing.has_room(account);
    if let Some(mut port) = port() {
        port.end_turn(link.to(), token::turn());
    }
}

/// Marks the links to a peer in all communicators, so that short messages to it take the slow path.
pub(crate) fn mark(pml: &Pml, state: &mut State, account: Account) {
    let links = rails::in_communicators(pml, state, account);
    for (context, rank) in links.iter().flat_map(|link| state.messenger.flow.holders.of(*link)) {
        let Some(communicator) = state.contexts.get(context) else { continue };
        // The communicator may have stored an earlier home of the peer.
        for link in &links {
            // SAFETY: P1: in `state.contexts`, so alive; P3.
            unsafe { communicator.as_ref() }.mark(rank, *link);
        }
    }
}
