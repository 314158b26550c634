// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow control: keeps the accounts of `engine::protocol::flow_control`, and sends what it says.
//!
//! A peer that has held this process back, or has sends pending, has its links marked in the communicators
//! ([`Link::marked`]): so the short paths, which look at nothing here, are not taken to it: each compares the link with
//! what it is unmarked.
//!
//! **Names.** With several ports the link changes by which a peer's messages go, and what it says may come by any. So
//! an account is kept by the first of its links, which never changes (`rails::account`); with one port, and by shared
//! memory, that is the link. What is said to the peer of an account goes by whichever link is its home now.
//!
//! **Marks.** A communicator has the mark beside the link, and whoever stores a link there stores the mark that it is
//! to have ([`way`]); who looks a peer up stores it only where nobody has (`Communicator::set_found`). A peer that
//! holds back has all its links marked, as a communicator may still have one that was its home before.
//!
//! **Peers by shared memory** have accounts as others have: what they send is kept in the same memory, and what waits
//! for room (`backlog`) is what waits for the port: it costs its sender nothing where it is in place, and its receiver
//! as much when it has gone. An eager message of theirs says its sender's rank alone; whoever that is, is looked up in
//! its communicator, and only beyond the bound.
//!
//! **Tools.** A send that pends was activated, and its transfer begins when it goes; a message is told of where it is
//! kept.
//!
//! What pended goes on by `resume`. Called by `protocol`, `incoming`, `accept`, `receive`, `probe` and `context`.
//! Grade: pending. Threads: who has entered the PML, and no port. Tests: `unexpected_memory.c` in `hw-tests/mpi`.

use std::ptr::NonNull;

use engine::counters::add_shared;
use engine::protocol::flow_control::Way;
use engine::protocol::header::Header;

use super::arrived::Arrived;
use super::bounds::RECORD;
use super::communicator::Communicator;
use super::instance::{Pml, State};
use super::link::{Account, Link};
use super::request::Request;
use super::{flight, rails, routing};

impl Arrived {
    fn cost(&self) -> u64 {
        RECORD + self.allocated() as u64
    }
}

// ---- the receiver's side --------------------------------------------------------------------------------------------

/// A message is about to be kept. Beyond the bound its sender is held back; `sender` is called only then.
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
    // This process is never held back: its blocking send would wait for its own receive.
    let Some(sender) = sender.filter(|sender| *sender != Link::ONESELF) else { return };
    let account = rails::account(pml, state, sender);
    if let Some(word) = state.flow.kept.hold_back(account) {
        add_shared(&state.flow.shown.senders_held_back, 1);
        flight::held_back(pml, account.0, state.flow.kept.bytes());
        say(pml, state, account, &Header::Flow(word));
    }
}

/// Says something to the peer of an account.
fn say(pml: &Pml, state: &mut State, Account(link): Account, header: &Header) {
    routing::control(pml, state, link, header);
}

/// A message that was kept has found its receive, or is dropped.
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

/// A peer says that messages of a communicator pend.
pub(crate) fn pending(pml: &Pml, state: &mut State, sender: Link, context: u32) {
    let account = rails::account(pml, state, sender);
    state.flow.kept.pends(account, context);
    // SAFETY: in state.contexts, so alive; P3.
    let wants = state.contexts.get(context).is_some_and(|communicator| unsafe {
        let communicator = communicator.as_ref();
        communicator.has_posted() || communicator.queues().unexpected() == 0
    });
    if wants {
        ask_for_more(pml, state, context);
    }
}

/// A receive or a probe of this communicator finds nothing, or a message no receive.
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

/// How a message goes, where not all are free, or its link is not as it stands in the communicator. Marks or unmarks
/// that by which the next one looks for its way.
#[cold]
#[inline(never)]
pub(crate) fn way(pml: &Pml, state: &mut State, communicator: &Communicator, request: &Request) -> Way {
    let context = communicator.context;
    let account = rails::account(pml, state, request.link);
    let way = state.flow.outgoing.way(account, context, request.tag);
    let passes = way != Way::Pends && state.flow.outgoing.may_pass(account, context);
    let link = rails::in_communicator(pml, request.link);
    communicator.set_link(request.peer, if passes { link } else { link.marked() });
    if let Way::Announced { .. } = way {
        add_shared(&state.flow.shown.announced_held_back, 1);
    }
    way
}

/// A send stays in the user's buffer for now.
#[cold]
#[inline(never)]
pub(crate) fn pend(pml: &Pml, state: &mut State, link: Link, context: u32, request: NonNull<Request>) {
    let account = rails::account(pml, state, link);
    state.flow.outgoing.pend(account, context, request);
    tell(pml, state, account, context);
}

/// Tells a peer that messages pend, if it is to know.
pub(crate) fn tell(pml: &Pml, state: &mut State, account: Account, context: u32) {
    if state.flow.outgoing.tells(account, context) {
        say(pml, state, account, &Header::Pending(context));
    }
}

/// A message waits for the port, or for room in shared memory; it is one of a request's that hears when it has gone.
pub(crate) fn waits(pml: &Pml, state: &mut State, link: Link, length: usize) {
    let account = rails::account(pml, state, link);
    state.flow.outgoing.waits(account, length as u64 + RECORD);
    state.flow.is_behind = true;
}
