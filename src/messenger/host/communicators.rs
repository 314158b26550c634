// SPDX-License-Identifier: MIT OR Apache-2.0
//! The communicators of a host: the messenger searches the queues that they lend. Called by `receive`, and by the
//! protocols for the numbers. Grade: hot, by static dispatch. Threads: the one that has entered the messenger.
//! Tests: those of the hosts.

use super::ports::Ports;
use super::process::PeerOf;
use crate::messenger::matching::lengths::Lengths;
use crate::messenger::receive::queues::Queues;
use crate::messenger::route::Route;

/// The communicators of a host.
pub trait Communicators: Ports {
    /// Names a communicator that the host has added.
    type Communicator: Copy;

    /// Returns the communicator of a request that begins, or is posted.
    fn communicator(&mut self, request: Self::Handle) -> Self::Communicator;

    /// Returns the context number of a communicator.
    fn number(&mut self, of: Self::Communicator) -> u32;

    /// Returns the rank of this process in a communicator, or the name by which it knows itself.
    fn rank(&mut self, of: Self::Communicator) -> PeerOf<Self>;

    /// Returns the context number of the communicator of a request, which may have gone.
    fn context(&mut self, request: Self::Handle) -> u32;

    /// Whether the communicator of a pending send has gone, so that nobody waits for the send.
    fn is_abandoned(&mut self, send: Self::Handle) -> bool;

    /// Returns the route to a rank, if the host has looked its process up before.
    fn known_route(&mut self, of: Self::Communicator, rank: PeerOf<Self>) -> Option<Route>;

    /// Whether messages to the peer of a send skip flow control: its communicator's route to the peer is current and
    /// unmarked.
    fn skips_flow_control(&mut self, process: &Self::Process, send: Self::Handle) -> bool;

    /// Stores the route of a send in its communicator, unmarked if later messages to the peer skip flow control.
    fn set_skips_flow_control(&mut self, process: &Self::Process, send: Self::Handle, skips: bool);

    /// Notes that a message is about to be sent whole. A simulated host, which keeps its own record of the words of
    /// peers, checks here that the peer permits it: later calls do not tell the message from those that waited at a
    /// port, or for shared memory, when the word came.
    fn sends_whole(&mut self, _send: Self::Handle) {}

    /// Marks these routes in all communicators, so that each later message to their peer asks flow control.
    fn mark(&mut self, routes: &[Route]);

    /// Lends the queues of a communicator, and their lengths as other threads see them.
    fn queues(&mut self, of: Self::Communicator) -> (&mut Queues<Self::Handle, Self::Envelope>, &Lengths);
}
