// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a host knows of other processes: which ports reach them, and which of its communicators have a route to them.
//!
//! Called by `messenger/rails`. Grade: hot for [`Peers::eager_limit`] and [`Peers::skips_flow_control`], else setup; by
//! static dispatch. Threads: the one that has entered the messenger, and no port. Tests: those of the hosts.

use super::Host;
use crate::messenger::receive;
use crate::messenger::route::Route;
use crate::peer::PeerName;
use crate::transport::Failure;

/// What a host knows of other processes.
pub trait Peers: Host {
    /// Returns the rank of this process in its job.
    fn me(&self) -> u32;

    /// Returns the process with this rank in a communicator; `None`: there is no such rank.
    fn name_of(&mut self, of: Self::Communicator, rank: i32) -> Option<PeerName>;

    /// Returns the routes to a process, in the order of rails; none if no port reaches it.
    fn routes_to(&mut self, process: &Self::Process, peer: PeerName) -> Vec<Route>;

    /// Returns the length of the longest data that is sent eagerly by this route now, bytes.
    fn eager_limit(&self, process: &Self::Process, route: Route) -> usize;

    /// Whether messages to the peer of a send skip flow control: the host's record of its route is current and
    /// unmarked.
    fn skips_flow_control(&mut self, process: &Self::Process, send: Self::Handle) -> bool;

    /// Records the route of a send, unmarked if later messages to its peer need not ask flow control.
    fn set_skips_flow_control(&mut self, process: &Self::Process, send: Self::Handle, passes: bool);

    /// Makes each later message by these routes to a peer ask flow control how it goes.
    fn mark(&mut self, process: &Self::Process, routes: &[Route]);

    /// Diverts all peers from a port of several that has lost its link, so that it probes none, or lets them return;
    /// informs the user. The messenger then moves the messages.
    fn link_changed(&mut self, process: &Self::Process, rail: usize, is_up: bool);

    /// Informs the user that a rail does not reach a peer any more, and that the rail `other` carries its messages.
    fn gives_up(&mut self, process: &Self::Process, rail: usize, failure: &Failure, other: usize);

    /// Notes that pending messages have their turn: the host calls [`send::in_turns`](crate::messenger::send::in_turns)
    /// soon.
    fn has_turn(&mut self);

    /// Notes that most polls of a port have found something, so a call that waits for it should let others progress.
    fn is_busy(&mut self) {}

    /// Hands a message to its protocol: the header comes first in `bytes`. `sender` looks its sender up.
    fn handle(&mut self, process: &Self::Process, bytes: &[u8], sender: impl Fn() -> Option<Route>) {
        receive::handle(process, self, bytes, sender);
    }
}
