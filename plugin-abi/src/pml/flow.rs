// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow control: keeps the accounts of `engine::messenger::flow_control`, sends its messages, and continues
//! pending sends.
//!
//! **Marks.** A link to a peer that holds this process back, or to which sends pend, is marked in the communicators
//! ([`Link::marked`]). The fast paths take no marked link, so each message comes to [`way`], which stores the link
//! anew, marked or not. A look-up stores a link only if none is stored yet (`Communicator::set_found`). When a peer
//! holds this process back, all its links are marked, because a communicator may still have an earlier home.
//!
//! **Shared memory.** These peers have accounts as well. An eager message by shared memory names only its sender's
//! rank; `incoming` looks the process up in the communicator once the bound is exceeded.
//!
//! Called by the PML's other files. Grade: pending. Threads: the one that has entered the PML, and no port. Tests:
//! `pml/tests.rs`, and `unexpected_memory.c` in `hw-tests/mpi`.

use engine::counters::add_shared;
use engine::messenger::arrived::Arrived;
use engine::messenger::flow_control::{Way, Word};
use engine::messenger::header::Header;
use engine::messenger::link::{Account, Link};

use super::communicator::Communicator;
use super::finish::finish;
use super::handle::Handle;
use super::instance::{Pml, Rail, State};
use super::request::Core;
use super::{flight, protocol, rails, routing, token};

// ---- the receiver's side --------------------------------------------------------------------------------------------

/// Accounts for an unexpected message to be stored. Beyond the bound, holds its `sender` back.
pub(crate) fn keep(pml: &Pml, state: &mut State, message: &Arrived, sender: impl FnOnce(&State) -> Option<Link>) {
    let is_beyond = state.messenger.flow.kept.keep(message.cost());
    state.messenger.flow.show();
    if is_beyond {
        let sender = sender(state);
        hold_back(pml, state, sender);
    }
}

#[cold]
#[inline(never)]
fn hold_back(pml: &Pml, state: &mut State, sender: Option<Link>) {
    // This process must not hold itself back: its blocking send would wait for its own receive.
    let Some(sender) = sender.filter(|sender| *sender != Link::ONESELF) else { return };
    let account = rails::account(pml, state, sender);
    if let Some(word) = state.messenger.flow.kept.hold_back(account) {
        add_shared(&state.messenger.flow.shown.senders_held_back, 1);
        flight::held_back(pml, account.0, state.messenger.flow.kept.bytes());
        routing::control(pml, state, account.0, &Header::Flow(word));
    }
}

/// Accounts for an unexpected message that is stored no longer: it has found its receive, or is dropped.
pub(crate) fn give_up(pml: &Pml, state: &mut State, message: &Arrived) {
    let has_room = state.messenger.flow.kept.give_up(message.cost());
    state.messenger.flow.show();
    if has_room {
        let_go(pml, state);
    }
}

#[cold]
#[inline(never)]
fn let_go(pml: &Pml, state: &mut State) {
    let (peers, word) = state.messenger.flow.kept.let_go();
    flight::let_go(state.messenger.flow.kept.bytes());
    for peer in peers {
        routing::control(pml, state, peer.0, &Header::Flow(word));
    }
}

/// Notes that sends of a peer pend in a communicator. Asks for more at once if a receive may wait for one of them.
pub(crate) fn pending(pml: &Pml, state: &mut State, sender: Link, context: u32) {
    let account = rails::account(pml, state, sender);
    state.messenger.flow.kept.pends(account, context);
    let wants = state.contexts.get(context).copied().is_some_and(|communicator| {
        // SAFETY: P1: in `state.contexts`, so alive.
        let communicator = unsafe { communicator.as_ref() };
        communicator.has_posted(state) || communicator.unexpected(state) == 0
    });
    if wants {
        ask_for_more(pml, state, context);
    }
}

/// Asks for more messages of a communicator: a receive or probe found no message, or a message found no receive.
#[inline]
pub(crate) fn found_nothing(pml: &Pml, state: &mut State, context: u32) {
    if state.messenger.flow.kept.has_pending() {
        ask_for_more(pml, state, context);
    }
}

#[cold]
#[inline(never)]
fn ask_for_more(pml: &Pml, state: &mut State, context: u32) {
    for peer in state.messenger.flow.kept.ask_for_more(context) {
        routing::control(pml, state, peer.0, &Header::More(context));
    }
}

// ---- the sender's side ----------------------------------------------------------------------------------------------

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

/// Queues a send behind those that pend; its data stays in the user's buffer.
#[cold]
#[inline(never)]
pub(crate) fn pend(pml: &Pml, state: &mut State, context: u32, request: Handle) {
    let &mut Core { link, tag, .. } = state.requests.core(request);
    let account = rails::account(pml, state, link);
    let tells = state.messenger.flow.outgoing.pend(account, context, tag, request);
    tell(pml, state, (account, context), tells);
}

/// Tells a peer that messages of a communicator pend, if flow control asks for it (`tells`).
fn tell(pml: &Pml, state: &mut State, (account, context): (Account, u32), tells: bool) {
    if tells {
        routing::control(pml, state, account.0, &Header::Pending(context));
    }
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

/// Sends as many pending messages of a communicator as flow control permits. Tells the peer if some are left, unless it
/// has been told since it last asked for more.
fn resume(pml: &Pml, state: &mut State, account: Account, context: u32) {
    while let Some((request, way)) = state.messenger.flow.outgoing.next(account, context) {
        go_on(pml, state, request, way);
    }
    let tells = state.messenger.flow.outgoing.tells(account, context);
    tell(pml, state, (account, context), tells);
}

/// Sends a message that was pending. Returns false if it finds no room.
fn go_on(pml: &Pml, state: &mut State, request: Handle, way: Way) -> bool {
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

/// Continues pending sends after the answer to an announced message that was counted.
pub(crate) fn answered(pml: &Pml, state: &mut State, link: Link, context: u32) {
    let account = rails::account(pml, state, link);
    state.messenger.flow.outgoing.answered(account, context);
    resume(pml, state, account, context);
}

/// Continues pending sends because the peer asks for more messages of a communicator.
pub(crate) fn more(pml: &Pml, state: &mut State, link: Link, context: u32) {
    let account = rails::account(pml, state, link);
    state.messenger.flow.outgoing.more(account, context);
    resume(pml, state, account, context);
}

/// Notes that the peer starts or stops holding this process back.
pub(crate) fn heard(pml: &Pml, state: &mut State, link: Link, word: Word) {
    let account = rails::account(pml, state, link);
    let Some(pending) = state.messenger.flow.outgoing.heard(account, word) else { return };
    if word.holds_back {
        mark(pml, state, account);
    }
    for context in pending {
        resume(pml, state, account, context);
    }
}

/// Marks the links to a peer in all communicators, so that short messages to it take the slow path.
fn mark(pml: &Pml, state: &mut State, account: Account) {
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
