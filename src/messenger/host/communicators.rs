// SPDX-License-Identifier: MIT OR Apache-2.0
//! The communicators of a host: the messenger searches the queues that they lend. Called by `receive/search.rs`, and by
//! the protocols for the numbers. Grade: hot, by static dispatch. Threads: the one that has entered the messenger.
//! Tests: those of the hosts.

use super::ports::Ports;
use crate::messenger::matching::{Envelope, Matching, Message, Pattern};
use crate::messenger::receive::arrived::Arrived;
use crate::messenger::route::Route;

/// The communicators of a host. A host that keeps a posted receive outside the queues, or counts their lengths, has its
/// own versions of the provided functions.
pub trait Communicators: Ports {
    /// Names a communicator that the host has added.
    type Communicator: Copy;

    /// Returns the communicator of a request that begins, or is posted.
    fn communicator(&mut self, request: Self::Handle) -> Self::Communicator;

    /// Returns the context number of a communicator.
    fn number(&mut self, of: Self::Communicator) -> u32;

    /// Returns the rank of this process in a communicator.
    fn rank(&mut self, of: Self::Communicator) -> i32;

    /// Returns the context number of the communicator of a request, which may have gone.
    fn context(&mut self, request: Self::Handle) -> u32;

    /// Whether nobody waits for a send that pends any more, because its communicator has gone.
    fn is_abandoned(&mut self, send: Self::Handle) -> bool;

    /// Returns the route to a rank, if the host has looked its process up before.
    fn known_route(&mut self, of: Self::Communicator, rank: i32) -> Option<Route>;

    /// Lends the queues of a communicator.
    fn queues(&mut self, of: Self::Communicator) -> &mut Matching<Self::Handle, Arrived>;

    /// Takes out the posted receive that a message matches. `TOLD`: tools are told of it; otherwise none is found while
    /// tools listen to the communicator.
    fn take_posted<const TOLD: bool>(&mut self, of: Self::Communicator, envelope: Envelope) -> Option<Self::Handle> {
        self.queues(of).search_posted(envelope).found
    }

    /// Posts a receive that no unexpected message matches. Returns its name, to cancel it. `TOLD`: tools are told of
    /// it.
    fn post<const TOLD: bool>(&mut self, of: Self::Communicator, pattern: Pattern, receive: Self::Handle) -> u64 {
        self.queues(of).insert_posted(pattern, receive).bits()
    }

    /// Whether a receive is posted.
    fn has_posted(&mut self, of: Self::Communicator) -> bool {
        self.queues(of).posted() > 0
    }

    /// Takes out the first unexpected message that matches a receive.
    fn take_unexpected(&mut self, of: Self::Communicator, pattern: Pattern) -> Option<Message<Arrived>> {
        self.queues(of).search_unexpected(pattern).found
    }

    /// Stores a message that matches no posted receive.
    fn insert_unexpected(&mut self, of: Self::Communicator, envelope: Envelope, message: Arrived) {
        let _ = self.queues(of).insert_unexpected(envelope, message);
    }
}
