// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the flight recorder has of the PML: long messages from their announcement to their end, and who is held back.
//!
//! A message has the number that its sender announces it by, on both sides. Called where each happens, by `protocol`,
//! `accept`, `reading`, `striped`, `getting`, `pieces` and `flow`. Path: pending grade, of messages that are announced.
//! Threads: who has entered the PML. Tests: `device/flight.rs` in `hw-tests`.

use engine::flight::{Kind, NO_PORT, NOBODY, record};
use engine::protocol::transfers::TransferId;
use ibex_ffi::openmpi::release;

use super::instance::{Pml, Rail};
use super::link::Link;
use super::request::{Request, Role};

/// By how a rendezvous ends, or which side of it begins: the details of its entries.
const SENT: u8 = 0;
const FETCHED: u8 = 1;
const WANTED: u8 = 2;
const COPIED: u8 = 3;

/// What happens to a long message.
pub(crate) enum Step {
    /// A send's is announced under this number.
    Announced(TransferId),
    /// Its receiver has all that it wants of it, or wants copies.
    Answered { number: TransferId, wants_copies: bool },
    /// A receive, which has noted its match, is to have so many bytes of the message that its sender calls this.
    Begins(TransferId, u64),
    /// It has read them.
    Fetched(TransferId, u64),
    /// They have come as copies, which do not say of which message.
    Copied,
}

/// A step of this request's message.
///
/// # Safety
/// P1: a request that is not finished.
#[cold]
#[inline(never)]
pub(crate) unsafe fn note(request: &mut Request, step: &Step) {
    let all = request.extent.length as u64;
    let (kind, detail, number, bytes) = match *step {
        Step::Announced(number) => (Kind::RendezvousBegun, SENT, number, all),
        Step::Answered { number, wants_copies } => {
            (Kind::RendezvousEnded, if wants_copies { WANTED } else { SENT }, number, all)
        }
        Step::Begins(number, bytes) => (Kind::RendezvousBegun, FETCHED, number, bytes),
        Step::Fetched(number, bytes) => (Kind::RendezvousEnded, FETCHED, number, bytes),
        Step::Copied => (Kind::RendezvousEnded, COPIED, TransferId(0), all),
    };
    let peer = if request.role == Role::Receive { request.base().req_status.MPI_SOURCE } else { request.peer };
    // SAFETY: P1: not finished, so its communicator lives.
    let context = unsafe { release::context(request.comm()) };
    // A receive has a link only where it reads.
    let has_link = request.role != Role::Receive || kind == Kind::RendezvousEnded && detail == FETCHED;
    let is_by_port = has_link && request.link.as_local().is_none();
    let port = if is_by_port { request.link.rail() as u8 } else { NO_PORT };
    record((kind, detail), port, peer.cast_unsigned(), [number.0.into(), bytes, context.into(), 0]);
}

/// A peer is asked to send no more.
pub(crate) fn held_back(pml: &Pml, link: Link, memory: u64) {
    let port = pml.rails().get(link.rail()).and_then(Rail::enter);
    let name = port.as_ref().and_then(|port| port.peer_name(link.to()));
    record((Kind::SenderHeldBack, 0), NO_PORT, name.map_or(NOBODY, |name| name.rank), [memory, 0, 0, 0]);
}

/// All may send again.
pub(crate) fn let_go(memory: u64) {
    record((Kind::SendersLetGo, 0), NO_PORT, NOBODY, [memory, 0, 0, 0]);
}
