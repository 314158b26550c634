// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a host has for tools: the listeners to its communicators, and a way to give them an event.
//!
//! `messenger/events` decides which events a request or a message has, and calls this. Grade: hot for a watched
//! message, by static dispatch. Threads: the one that has entered the messenger. Tests: those of the hosts.

use super::communicators::Communicators;
use super::process::{PeerOf, TagOf};
use crate::events::{self, TypeId, XferBegin};
use crate::messenger::events::{Completed, Event, transfers};
use crate::messenger::path_taken::PathTaken;
use crate::messenger::request::Role;
use crate::messenger::route::{Account, Route};

/// Gives events to tools.
pub trait Tools: Communicators {
    /// Listeners of tools to a communicator.
    type Listeners: Copy;
    /// What all events of a message, or of a search for one, say of it.
    type Spec;

    /// Returns the listeners to a communicator; `None`: no tool listens to it.
    fn listeners(&mut self, of: Self::Communicator) -> Option<Self::Listeners>;

    /// Returns the listeners to the communicator of a request.
    fn listeners_of(&mut self, request: Self::Handle) -> Option<Self::Listeners>;

    /// Whether a request raises no events, because it began while no tool listened, and noted too little.
    fn is_silent(&mut self, _request: Self::Handle) -> bool {
        false
    }

    /// Whether these listeners want this event.
    fn wants(listeners: Self::Listeners, event: Event) -> bool;

    /// Whether these listeners want the paths of the messages of requests in this role.
    fn wants_paths(listeners: Self::Listeners, _role: Role) -> bool {
        Self::wants(listeners, Event::Protocol)
    }

    /// Reserves `count` numbers, by which events name requests, messages and searches. Returns the first; each further
    /// one is greater by 2.
    fn numbers(&mut self, count: u64) -> u64;

    /// Notes what the events of a request will say of it. Called when the request has got its number.
    fn introduce(&mut self, _request: Self::Handle) {}

    /// Makes the specification of a message of `length` bytes with this source and tag, or of a search for it.
    fn spec(&mut self, of: Self::Communicator, wanted: (PeerOf<Self>, TagOf<Self>), length: usize) -> Self::Spec;

    /// Returns the peer, the tag and the length in bytes that a specification has.
    fn of_spec(spec: &Self::Spec) -> ((PeerOf<Self>, TagOf<Self>), usize);

    /// Gives listeners an event of a request, or of the search for its message. `id`: number of the request or search.
    fn raise(&mut self, listeners: Self::Listeners, event: Event, id: u64, request: Self::Handle);

    /// Gives listeners an event of a message, or of a search.
    fn raise_of_message(&mut self, listeners: Self::Listeners, event: Event, id: u64, spec: &mut Self::Spec);

    /// Gives listeners the path of a request's message: the message's number (0: unknown) and its length in bytes.
    fn raise_path(&mut self, to: Self::Listeners, request: Self::Handle, message: (u64, usize), path: PathTaken);

    /// Gives listeners the path of the message of a send without a request, by its number and specification.
    fn raise_path_of_message(&mut self, to: Self::Listeners, id: u64, spec: &Self::Spec, path: PathTaken);

    /// Returns the rank in its job of a process of a communicator; `u32::MAX` if there is none.
    fn rank_in_job(&mut self, of: Self::Communicator, rank: PeerOf<Self>) -> u32;

    /// Whether tools want the transfer events of this type.
    fn wants_step(&mut self, step: TypeId) -> bool {
        events::interest().has(step)
    }

    /// Raises a transfer event of this type, which has the elements of [`XferBegin`].
    fn step(&mut self, step: TypeId, elements: XferBegin, by: Option<Completed>) {
        transfers::raise(step, elements, by);
    }

    /// Returns the route to a rank, which the host may look up.
    fn route_to(&mut self, _process: &Self::Process, of: Self::Communicator, rank: PeerOf<Self>) -> Option<Route> {
        self.known_route(of, rank)
    }

    /// Enters in the flight recorder that a peer is held back, or that all may go on.
    fn record_flow(&mut self, _process: &Self::Process, _held_back: Option<Account>) {}
}
