// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow control in Open MPI's communicators: which routes they store marked, and whose turn it is. Flow control itself
//! is `engine::messenger::flow_control`.
//!
//! **Marks.** A route to a peer that holds this process back, or to which sends pend, is marked in the communicators
//! ([`Route::marked`]). The fast paths take no marked route, so each message asks flow control, and
//! `set_skips_flow_control` stores the route anew, marked or not. A look-up stores a route only if none is stored yet
//! (`Communicator::set_found`). When a peer holds this process back, all its routes are marked, because a communicator
//! may still have an earlier home.
//!
//! **Shared memory.** These peers have accounts as well. An eager message by shared memory names only its sender's
//! rank; the messenger has the process looked up (`rails::known`) once the bound is exceeded.
//!
//! Called by `progress`, `local` and `ports`. Grade: pending. Threads: the one that has entered the PML, and no port.
//! Tests: `pml/tests.rs`, and `unexpected_memory.c` in `hw-tests/mpi`.

use engine::messenger::route::{Account, Route};

use super::rails;
use crate::pml::instance::{Pml, State};

/// Notes that it is the turn of pending messages by this route. [`crate::pml::progress::leave`] sends them once nothing
/// more arrives.
pub(crate) fn has_turn(state: &mut State, route: Route) {
    state.messenger.flow.turns.push(route);
    state.has_more = true;
}

/// Marks the routes to a peer in all communicators, so that short messages to it take the slow path.
pub(crate) fn mark(pml: &Pml, state: &mut State, account: Account) {
    let routes = rails::in_communicators(pml, state, account);
    for (context, rank) in routes.iter().flat_map(|route| state.messenger.flow.holders.of(*route)) {
        let Some(communicator) = state.messenger.contexts.get(context) else { continue };
        // The communicator may have stored an earlier home of the peer.
        for route in &routes {
            communicator.mark(rank, *route);
        }
    }
}
