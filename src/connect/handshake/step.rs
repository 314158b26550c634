// SPDX-License-Identifier: MIT OR Apache-2.0
//! A handshake's instructions to the port after a hello or a time-out. `handshake.rs` makes them,
//! `transport/port/establish.rs` executes them. Path: setup. Threads: the port's.

use super::failure::Failure;
use crate::connect::Via;

/// Instructions to the port. `program` comes before `send` and `confirmed`. If none is set there is nothing to do.
#[must_use]
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub struct Step {
    /// The hello was ignored for this reason: count it.
    pub ignored: Option<Ignored>,
    /// The peer has begun a new connection while this one is in use. Keep this one, and make a successor: a queue pair
    /// with a handshake of a new epoch, which gets this same hello. Once confirmed, the successor replaces this one.
    pub superseded: bool,
    /// Set the local queue pair to this one of the peer, ready to receive. The path is in the hello's `source.address`.
    pub program: Option<Program>,
    /// The peer can receive: set the queue pair ready to send, and send waiting requests. Comes once per handshake.
    pub confirmed: bool,
    /// Send [`Handshake::hello`](super::Handshake::hello), made after `program` was executed, by these carriers.
    pub send: Option<Via>,
    /// The connection cannot be made. Comes once; the handshake does nothing afterwards.
    pub failed: Option<Failure>,
}

/// The peer's queue pair, and the abilities of both.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Program {
    /// Number of the peer's queue pair (`dest_qp_num`).
    pub qpn: u32,
    /// First sequence number of its sends (`rq_psn`).
    pub psn: u32,
    /// The peer's name for us, which messages to it carry.
    pub endpoint: u32,
    /// Smaller of both ports' MTUs, as verbs.h's code (`path_mtu`).
    pub mtu: u8,
    /// Reads and atomics that we may have in flight (`max_rd_atomic`): as many as we can have and the peer serves.
    pub max_rd_atomic: u8,
    /// Reads and atomics of the peer that we serve at once (`max_dest_rd_atomic`).
    pub max_dest_rd_atomic: u8,
    /// Whether to reset our queue pair first (its numbers stay): it was set to an earlier one, which the peer gave up.
    pub reset: bool,
}

/// Why a hello was ignored.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Ignored {
    /// It is for another instance of this port (or another port).
    NotForUs,
    /// It is from another instance of the peer than the one whose address we have.
    OtherInstance,
    /// It is late: it belongs to an earlier connection.
    Late,
    /// It names another queue pair for the connection that we already have; the first one counts.
    Conflict,
    /// This handshake has failed before.
    Failed,
}
