// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow control: keeps the accounts of `engine::messenger::flow_control`, and sends its messages. `resume` continues
//! pending sends.
//!
//! **Marks.** A link to a peer that holds this process back, or to which sends pend, is marked in the communicators
//! ([`Link::marked`]). The fast paths take no marked link, so each message comes to [`way`], which stores the link
//! anew, marked or not. A look-up stores a link only if none is stored yet (`Communicator::set_found`). When a peer
//! holds back, all its links are marked, because a communicator may still have an earlier home.
//!
//! **Shared memory.** These peers have accounts as well. An eager message by shared memory names only its sender's
//! rank; `incoming` looks the process up in the communicator once the bound is exceeded.
//!
//! Called by `protocol`, `incoming`, `accept`, `receive`, `probe`, `context`, `resume`. Grade: pending. Threads: the
//! one that has entered the PML, and no port. Tests: `unexpected_memory.c` in `hw-tests/mpi`.

use std::ptr::NonNull;

use engine::counters::add_shared;
use engine::messenger::arrived::Arrived;
use engine::messenger::flow_control::Way;
use engine::messenger::header::Header;
use engine::messenger::link::{Account, Link};

use super::communicator::Communicator;
use super::instance::{Pml, State};
use super::request::{Core, Request};
use super::{flight, rails, routing};

// ---- the receiver's side --------------------------------------------------------------------------------------------

/// Accounts for an unexpected message to be stored. Beyond the bound, holds its `sender` back.
pub(crate) fn keep(pml: &Pml, state: &mut State, message: &Arrived, sender: impl FnOnce(&State) -> Option<Link>) {
    let is_beyond = state.flow.kept.keep(message.cost());
    state.flow.show();
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
    if let Some(word) = state.flow.kept.hold_back(account) {
        add_shared(&state.flow.shown.senders_held_back, 1);
        flight::held_back(pml, account.0, state.flow.kept.bytes());
        say(pml, state, account, &Header::Flow(word));
    }
}

fn say(pml: &Pml, state: &mut State, Account(link): Account, header: &Header) {
    routing::control(pml, state, link, header);
}

/// Accounts for an unexpected message that is stored no longer: it has found its receive, or is dropped.
pub(crate) fn give_up(pml: &Pml, state: &mut State, message: &Arrived) {
    let has_room = state.flow.kept.give_up(message.cost());
    state.flow.show();
    if has_room {
        let_go(pml, state);
    }
}

#[cold]
#[inline(never)]
fn let_go(pml: &Pml, state: &mut State) {
    let (peers, word) = state.flow.kept.let_go();
    flight::let_go(state.flow.kept.bytes());
    for peer in peers {
        say(pml, state, peer, &Header::Flow(word));
    }
}

/// Notes that sends of a peer pend in a communicator. Asks for more at once if a receive may wait for one of them.
pub(crate) fn pending(pml: &Pml, state: &mut State, sender: Link, context: u32) {
    let account = rails::account(pml, state, sender);
    state.flow.kept.pends(account, context);
    // SAFETY: P1: in `state.contexts`, so alive; P3.
    let wants = state.contexts.get(context).is_some_and(|communicator| unsafe {
        let communicator = communicator.as_ref();
        communicator.has_posted() || communicator.queues().unexpected() == 0
    });
    if wants {
        ask_for_more(pml, state, context);
    }
}

/// Asks for more messages of a communicator: a receive or probe found no message, or a message found no receive.
#[inline]
pub(crate) fn found_nothing(pml: &Pml, state: &mut State, context: u32) {
    if state.flow.kept.has_pending() {
        ask_for_more(pml, state, context);
    }
}

#[cold]
#[inline(never)]
fn ask_for_more(pml: &Pml, state: &mut State, context: u32) {
    for peer in state.flow.kept.ask_for_more(context) {
        say(pml, state, peer, &Header::More(context));
    }
}

// ---- the sender's side ----------------------------------------------------------------------------------------------

/// Decides how a send goes while flow control limits a peer, or the communicator's link is old; stores the link.
#[cold]
#[inline(never)]
pub(crate) fn way(pml: &Pml, state: &mut State, communicator: &Communicator, request: &Request) -> Way {
    let context = communicator.context;
    let account = rails::account(pml, state, request.core.link);
    let way = state.flow.outgoing.way(account, context, request.core.tag);
    let passes = way != Way::Pends && state.flow.outgoing.may_pass(account, context);
    let link = rails::in_communicator(pml, request.core.link);
    communicator.set_link(request.core.peer, if passes { link } else { link.marked() });
    if let Way::Announced { .. } = way {
        add_shared(&state.flow.shown.announced_held_back, 1);
    }
    way
}

/// Queues a send behind those that pend; its data stays in the user's buffer.
#[cold]
#[inline(never)]
pub(crate) fn pend(pml: &Pml, state: &mut State, context: u32, request: NonNull<Request>) {
    // SAFETY: P1: only the caller has the request; P3.
    let (link, tag) = unsafe { (request.as_ref().core.link, request.as_ref().core.tag) };
    let account = rails::account(pml, state, link);
    if state.flow.outgoing.pend(account, context, tag, request) {
        say(pml, state, account, &Header::Pending(context));
    }
}

/// Queues a send that found no room before those that pend, until their turn.
#[cold]
#[inline(never)]
pub(crate) fn found_no_room(pml: &Pml, state: &mut State, communicator: &Communicator, request: NonNull<Request>) {
    // SAFETY: P1: only the caller has the request; P3.
    let &Core { link, tag, peer, .. } = unsafe { &request.as_ref().core };
    communicator.set_link(peer, rails::in_communicator(pml, link).marked());
    let account = rails::account(pml, state, link);
    state.flow.outgoing.found_no_room(account, communicator.context, tag, request);
    routing::queue_turn(pml, state, link);
}
