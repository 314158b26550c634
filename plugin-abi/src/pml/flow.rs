// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow control: keeps the accounts of `engine::protocol::flow_control`, and sends what it says.
//!
//! A peer that has held this process back, or has sends pending, has its links marked in the communicators ([`Link::marked`]): so
//! the short path, which looks at nothing here, is not taken to it. What pended goes on by `resume`. Called by
//! `protocol`, `incoming`, `accept`, `receive`, `probe`, `progress` and `context`. Grade: pending. Threads: who has entered the PML. Tests: `unexpected_memory.c` in `hw-tests/mpi`.

use std::ptr::NonNull;

use engine::counters::add_shared;
use engine::protocol::flow_control::Way;
use engine::protocol::header::Header;
use ibex_ffi::openmpi::process::Process;

use super::arrived::Arrived;
use super::bounds::RECORD;
use super::communicator::Communicator;
use super::instance::{Pml, State};
use super::link::Link;
use super::request::Request;
use super::transmit;
use crate::runtime::modex;

impl Arrived {
    fn cost(&self) -> u64 {
        RECORD + self.allocated() as u64
    }
}

// ---- the receiver's side --------------------------------------------------------------------------------------------

/// A message is about to be kept. Beyond the bound its sender is held back; `sender` is called only then.
pub(crate) fn keep(pml: &Pml, state: &mut State, message: &Arrived, sender: impl FnOnce() -> Option<Link>) {
    let is_beyond = state.flow.kept.keep(message.cost());
    state.flow.show();
    if is_beyond {
        hold_back(pml, state, sender());
    }
}

#[cold]
#[inline(never)]
fn hold_back(pml: &Pml, state: &mut State, sender: Option<Link>) {
    if let Some(sender) = sender
        && !is_this_process(state, sender)
        && let Some(word) = state.flow.kept.hold_back(sender)
    {
        add_shared(&state.flow.shown.senders_held_back, 1);
        transmit::control(pml, state, sender, &Header::Flow(word));
    }
}

/// Whether that is the way to this process itself. It is never held back: its blocking send would wait for its own receive.
fn is_this_process(state: &State, sender: Link) -> bool {
    let own = Process::me().and_then(|me| state.peers.get(&modex::from_openmpi(me.name())));
    own == Some(&sender)
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
    for peer in peers {
        transmit::control(pml, state, peer, &Header::Flow(word));
    }
}

/// A peer says that messages of a communicator pend.
pub(crate) fn pending(pml: &Pml, state: &mut State, sender: Link, context: u32) {
    state.flow.kept.pends(sender, context);
    // SAFETY: in the table, so alive; the PML is entered.
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
        transmit::control(pml, state, peer, &Header::More(context));
    }
}

// ---- the sender's side ----------------------------------------------------------------------------------------------

/// How a message goes, where not all are free. Marks or unmarks the link by which the next one looks for its way.
#[cold]
#[inline(never)]
pub(crate) fn way(state: &mut State, communicator: &Communicator, rank: i32, link: Link, tag: i32) -> Way {
    let context = communicator.context;
    let way = state.flow.outgoing.way(link, context, tag);
    let passes = way != Way::Pends && state.flow.outgoing.may_pass(link, context);
    communicator.set_link(rank, if passes { link } else { link.marked() });
    if let Way::Announced { .. } = way {
        add_shared(&state.flow.shown.announced_held_back, 1);
    }
    way
}

/// A send stays in the user's buffer for now.
#[cold]
#[inline(never)]
pub(crate) fn pend(pml: &Pml, state: &mut State, link: Link, context: u32, request: NonNull<Request>) {
    state.flow.outgoing.pend(link, context, request);
    tell(pml, state, link, context);
}

/// Tells a peer that messages pend, if it is to know.
pub(crate) fn tell(pml: &Pml, state: &mut State, link: Link, context: u32) {
    if state.flow.outgoing.tells(link, context) {
        transmit::control(pml, state, link, &Header::Pending(context));
    }
}

/// A message waits for the port; it is one of a request's that hears when it has gone.
pub(crate) fn waits(state: &mut State, link: Link, length: usize) {
    state.flow.outgoing.waits(link, length as u64 + RECORD);
}
