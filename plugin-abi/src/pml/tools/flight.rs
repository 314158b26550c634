// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries of the PML in the flight recorder: long messages from announcement to end, and senders that are held back.
//!
//! Called by `tools`. Grade: pending, for announced messages. Threads: the one that has entered the PML. Tests: below;
//! `device/flight.rs` in `hw-tests`.

use engine::flight::{Kind, NO_PORT, NOBODY, record};
use engine::messenger::host::Data;
use engine::messenger::rendezvous::Step;
use engine::messenger::request::transfer_id::TransferId;
use engine::messenger::route::Account;
use ibex_ffi::openmpi::release;

use crate::pml::instance::{Pml, State};
use crate::pml::request::{Handle, Request, Role};

/// Details of an entry: how a rendezvous ends, or which side of it begins.
const SENT: u8 = 0;
const FETCHED: u8 = 1;
const WANTED: u8 = 2;
const COPIED: u8 = 3;

/// Returns the number of bytes that a request sends, or takes of its message.
fn bytes(request: &mut Request) -> u64 {
    let length = request.core.data.length();
    let is_receive = request.core.role == Role::Receive;
    (if is_receive { request.base().req_status._ucount.min(length) } else { length }) as u64
}

#[cold]
#[inline(never)]
pub(crate) fn note(state: &mut State, request: Handle, step: &Step) {
    let request = state.requests.get(request);
    let all = bytes(request);
    let (kind, detail, number, bytes) = match *step {
        Step::Offered(number) => (Kind::RendezvousBegun, SENT, number, all),
        Step::Answered { number, wants_copies } => {
            (Kind::RendezvousEnded, if wants_copies { WANTED } else { SENT }, number, all)
        }
        Step::Begins(number, bytes) => (Kind::RendezvousBegun, FETCHED, number, bytes),
        Step::Fetched(number, bytes) => (Kind::RendezvousEnded, FETCHED, number, bytes),
        Step::Copied => (Kind::RendezvousEnded, COPIED, TransferId(0), all),
    };
    let is_receive = request.core.role == Role::Receive;
    let peer = if is_receive { request.base().req_status.MPI_SOURCE } else { request.core.peer };
    // SAFETY: P1: the request is not finished, so its communicator lives.
    let context = unsafe { release::context(request.comm()) };
    // A receive has a route only if it reads.
    let has_route = !is_receive || kind == Kind::RendezvousEnded && detail == FETCHED;
    let is_by_port = has_route && request.core.route.as_local().is_none();
    let port = if is_by_port { request.core.route.rail() as u8 } else { NO_PORT };
    record((kind, detail), port, peer.cast_unsigned(), [number.0.into(), bytes, context.into(), 0]);
}

/// Enters that a peer is held back, or that all may go on, with the bytes of the unexpected messages.
pub(crate) fn held_back(pml: &Pml, peer: Option<Account>, kept: u64) {
    let name = peer.and_then(|Account(route)| pml.rails().get(route.rail())?.enter()?.peer_name(route.to()));
    let kind = if peer.is_some() { Kind::SenderHeldBack } else { Kind::SendersLetGo };
    record((kind, 0), NO_PORT, name.map_or(NOBODY, |name| name.rank), [kept, 0, 0, 0]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pml::datatype::Extent;
    use crate::pml::request::Mode;

    #[test]
    fn a_receive_counts_the_bytes_of_its_message_that_it_has_room_for() {
        let mut request = Request::unused();
        // SAFETY: P2: nobody reads or writes them.
        unsafe { request.core.data.set_extent(Extent { length: 100, ..Extent::EMPTY }) };
        for (role, of_message, wanted) in
            [(Role::Receive, 40, 40), (Role::Receive, 140, 100), (Role::Send(Mode::Standard), 0, 100)]
        {
            request.core.role = role;
            request.base().req_status._ucount = of_message;
            assert_eq!(bytes(&mut request), wanted);
        }
    }
}
