// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps of a long message, and their entries in the flight recorder. Called where the steps happen. Grade:
//! pending. Threads: the one that has entered the messenger. Tests: below; `device/flight.rs` in `hw-tests`.

use crate::flight::{Kind, NO_PORT, record};
use crate::messenger::header::WireEnvelope;
use crate::messenger::host::{Data, Host};
use crate::messenger::request::Role;
use crate::messenger::request::transfer_id::TransferId;

/// Details of an entry: how a rendezvous ends, or which side of it begins.
const SENT: u8 = 0;
const FETCHED: u8 = 1;
const WANTED: u8 = 2;
const COPIED: u8 = 3;

/// A step of a long message; both sides know the message by the sender's number.
#[derive(Clone, Copy, Debug)]
pub(in crate::messenger) enum Step {
    /// Sender: the message, or its announcement, was sent with this number.
    Offered(TransferId),
    /// Sender: the receiver has answered that it has the data, or that it needs copies.
    Answered {
        /// Number of the message.
        number: TransferId,
        /// Whether it needs copies.
        wants_copies: bool,
    },
    /// Receiver: the transfer of this number of bytes begins. The match was noted before.
    Begins(TransferId, u64),
    /// Receiver: the bytes were read.
    Fetched(TransferId, u64),
    /// Receiver: the bytes arrived as copies, which do not name the message.
    Copied,
}

/// Enters a step of a request in the flight recorder.
#[cold]
#[inline(never)]
pub(in crate::messenger) fn enter<H: Host>(host: &mut H, request: H::Handle, step: &Step) {
    let context = host.context(request);
    let ((source, _), of_message) = host.noted(request);
    let core = host.core(request);
    let is_receive = core.role == Role::Receive;
    let all = bytes(is_receive, core.data.length(), of_message);
    let (kind, detail, number, bytes) = match *step {
        Step::Offered(number) => (Kind::RendezvousBegun, SENT, number, all),
        Step::Answered { number, wants_copies } => {
            (Kind::RendezvousEnded, if wants_copies { WANTED } else { SENT }, number, all)
        }
        Step::Begins(number, bytes) => (Kind::RendezvousBegun, FETCHED, number, bytes),
        Step::Fetched(number, bytes) => (Kind::RendezvousEnded, FETCHED, number, bytes),
        Step::Copied => (Kind::RendezvousEnded, COPIED, TransferId(0), all),
    };
    let (peer, _) = H::Envelope::shown(if is_receive { source } else { core.peer }, core.tag);
    // A receive has a route only if it reads.
    let has_route = !is_receive || kind == Kind::RendezvousEnded && detail == FETCHED;
    let is_by_port = has_route && core.route.as_local().is_none();
    let port = if is_by_port { core.route.rail() as u8 } else { NO_PORT };
    record((kind, detail), port, peer.cast_unsigned(), [number.0.into(), bytes, context.into(), 0]);
}

/// Returns the number of bytes that a request transfers. A send transfers all its `length` bytes; a receive, of the
/// `of_message` bytes of its message, as many as its buffer of `length` bytes can have.
const fn bytes(is_receive: bool, length: usize, of_message: usize) -> u64 {
    (if is_receive && of_message < length { of_message } else { length }) as u64
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn a_receive_counts_the_bytes_of_its_message_that_it_has_room_for() {
        assert_eq!([bytes(true, 100, 40), bytes(true, 100, 140), bytes(false, 100, 0)], [40, 100, 100]);
    }
}
