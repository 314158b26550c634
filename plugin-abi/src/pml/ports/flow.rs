// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow control in Open MPI's communicators: which links they store marked, and whose turn it is. Flow control itself
//! is `engine::messenger::flow_control`.
//!
//! **Marks.** A link to a peer that holds this process back, or to which sends pend, is marked in the communicators
//! ([`Link::marked`]). The fast paths take no marked link, so each message asks flow control, and [`set_link`] stores
//! the link anew, marked or not. A look-up stores a link only if none is stored yet (`Communicator::set_found`). When a
//! peer holds this process back, all its links are marked, because a communicator may still have an earlier home.
//!
//! **Shared memory.** These peers have accounts as well. An eager message by shared memory names only its sender's
//! rank; `incoming` looks the process up in the communicator once the bound is exceeded.
//!
//! Called by `progress`, `local` and `host`. Grade: pending. Threads: the one that has entered the PML, and no port.
//! Tests: `pml/tests.rs`, and `unexpected_memory.c` in `hw-tests/mpi`.

use engine::messenger::link::{Account, Link};

use super::rails;
use crate::pml::handle::Handle;
use crate::pml::instance::{Pml, State};
use crate::pml::request::Core;

/// Whether the communicator of a send has its link, unmarked. If not, it has a mark, or an earlier home of the peer.
pub(crate) fn has_link(pml: &Pml, state: &mut State, send: Handle) -> bool {
    let &mut Core { link, peer, .. } = state.requests.core(send);
    state.communicator(send).link(peer) == rails::in_communicator(pml, link)
}

/// Stores the link of a send in its communicator, marked unless short messages may use it.
pub(crate) fn set_link(pml: &Pml, state: &mut State, send: Handle, passes: bool) {
    let &mut Core { link, peer, .. } = state.requests.core(send);
    let link = rails::in_communicator(pml, link);
    state.communicator(send).set_link(peer, if passes { link } else { link.marked() });
}

/// Notes that it is the turn of pending messages by this link. [`crate::pml::progress::leave`] sends them once nothing more
/// arrives.
pub(crate) fn has_turn(state: &mut State, link: Link) {
    state.messenger.flow.turns.push(link);
    state.has_more = true;
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
