// SPDX-License-Identifier: MIT OR Apache-2.0
//! The knowledge of a host about other processes: their names, and the ports that reach them.
//!
//! Called by `messenger/rails`. Grade: setup, by static dispatch. Threads: the one that has entered the messenger, and
//! no port. Tests: those of the hosts.

use super::{Host, PeerOf};
use crate::messenger::receive;
use crate::messenger::route::Route;
use crate::peer::PeerName;
use crate::transport::Failure;

/// The knowledge of a host about other processes.
pub trait Peers: Host {
    /// Returns the rank of this process in its job.
    fn me(&self) -> u32;

    /// Returns the process with this rank in a communicator; `None`: there is no such rank.
    fn name_of(&mut self, of: Self::Communicator, rank: PeerOf<Self>) -> Option<PeerName>;

    /// Returns the routes to a process, in the order of rails; none if no port reaches it.
    fn routes_to(&mut self, process: &Self::Process, peer: PeerName) -> Vec<Route>;

    /// One of several ports has lost its link: diverts all peers from it, so that it probes none. Or the link is back:
    /// lets the peers return. Informs the user. The messenger moves the messages afterwards.
    fn link_changed(&mut self, process: &Self::Process, rail: usize, is_up: bool);

    /// Informs the user that a rail does not reach a peer any more, and that the rail `other` carries its messages.
    fn gives_up(&mut self, process: &Self::Process, rail: usize, failure: &Failure, other: usize);

    /// Notes that pending messages have their turn: the host calls [`send::in_turns`](crate::messenger::send::in_turns)
    /// soon.
    fn has_turn(&mut self);

    /// Notes that most polls of a port have found something, so a call that waits for it should let others progress.
    fn is_busy(&mut self) {}

    /// Hands a message, which begins with its header, to its protocol. `sender` looks its sender up.
    fn handle(&mut self, process: &Self::Process, bytes: &[u8], sender: impl Fn() -> Option<Route>) {
        receive::handle(process, self, bytes, sender);
    }
}
