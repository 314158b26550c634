// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a handshake tells the port to do when a hello has come or time has passed. Values, no behaviour.
//!
//! Made by `handshake.rs`, carried out by `transport/connections`. Path: setup. Threads: the port's.

use super::failure::Failure;
use crate::connect::Via;

/// What the port shall do, in the order of the fields. Nothing set: nothing to do.
#[must_use]
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub struct Step {
    /// The hello was of no use, for this reason: count it.
    pub ignored: Option<Ignored>,
    /// The peer says that it has begun a new connection while this one was in use (it would have dropped its end). Keep
    /// this one, make a queue pair with a handshake of a new epoch beside it, and give this same hello to that. When
    /// that is confirmed, it takes this one's place.
    pub superseded: bool,
    /// Set the local queue pair to this one of the peer: ready to receive, then ready to send. The peer's path is in
    /// the hello's `source.address`.
    pub program: Option<Program>,
    /// The peer can receive: send what waits. Comes once per handshake.
    pub confirmed: bool,
    /// Send [`Handshake::hello`](super::Handshake::hello), made after `program` was done, by this.
    pub send: Option<Via>,
    /// No connection comes about. Comes once; the handshake does nothing afterwards.
    pub failed: Option<Failure>,
}

/// The peer's queue pair, and what both can do.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Program {
    /// The number of the peer's queue pair (`dest_qp_num`).
    pub qpn: u32,
    /// The sequence number its sends begin with (`rq_psn`).
    pub psn: u32,
    /// The peer's own name for us, which messages to it carry.
    pub endpoint: u32,
    /// The smaller of both ports' MTU, as verbs.h's code (`path_mtu`).
    pub mtu: u8,
    /// How many reads and atomics we may have in flight (`max_rd_atomic`): what we can and the peer serves.
    pub max_rd_atomic: u8,
    /// How many of the peer's we serve at once (`max_dest_rd_atomic`).
    pub max_dest_rd_atomic: u8,
    /// The queue pair was set to an earlier one of the peer, which it has given up before anything was sent: reset ours
    /// first (number and sequence number stay).
    pub reset: bool,
}

/// Why a hello was of no use.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Ignored {
    /// It is for another life of this port (or another port).
    NotForUs,
    /// It is from another life of the peer than the one whose address we have.
    OtherInstance,
    /// It belongs to an earlier connection: it was late.
    Late,
    /// It names another queue pair for the connection we already have; the first one counts.
    Conflict,
    /// This handshake has failed before.
    Failed,
}
