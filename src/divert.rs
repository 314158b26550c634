// SPDX-License-Identifier: MIT OR Apache-2.0
//! A port that goes down while the process has others: its new messages are refused, so that the caller sends them elsewhere.
//!
//! A peer is *diverted* while this port has no link: a message to it is refused before anything is kept of it, one that waits
//! for a connection may come back unposted, and all else (operations on memory, whose keys are of this port) goes to the adapter as
//! ever, which repeats it for some seconds. The caller decides when peers are diverted and when they return. Called by the plugin.
//! Grade: setup; a diverted peer costs other messages nothing. One thread at a time (`&mut Port`). Tests: the device tests in `hw-tests`.

use crate::endpoint::{Operation, Request, State};
use crate::event::{EndpointId, Event, Failed, Token};
use crate::failure::Cause;
use crate::peer::PeerName;
use crate::port::Port;
use ibex_ffi::verbs::Status;

/// Ports of one peer that are looked through.
const PORTS: u8 = 16;

/// Whether a port's peers are diverted.
#[derive(Debug, Default)]
pub(crate) struct Diversion {
    /// The adapter has said that the port has no link.
    is_down: bool,
    /// Some peers are diverted, and new ones are.
    pub(crate) is_on: bool,
}

impl Port {
    /// The adapter says that the port has a link again, or none any more.
    #[cold]
    pub(crate) fn link_changed(&mut self, is_up: bool) {
        if self.diversion.is_down == is_up && !self.closing {
            self.diversion.is_down = !is_up;
            self.overflow.push_back(Event::LinkChanged { is_up }.into());
        }
    }

    /// Reminds of a link that is there again, while peers are still diverted.
    pub(crate) fn remind_of_diverted(&mut self) {
        if self.diversion.is_on && !self.diversion.is_down && !self.closing {
            self.overflow.push_back(Event::LinkChanged { is_up: true }.into());
        }
    }

    /// Whether the port has no link.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.diversion.is_down
    }

    /// Diverts every peer, those still to come included, until [`Port::undivert`]. Messages with a tag of which `may_move` holds
    /// come back where they wait for a connection to be made.
    pub fn divert_all(&mut self, may_move: impl Fn(u8) -> bool) {
        self.diversion.is_on = true;
        for index in 0..self.endpoints.len() as u32 {
            let to = EndpointId::from_index(index);
            self.endpoints[index as usize].diverted = true;
            if let Some(connection) = self.connection_mut(to) {
                connection.divert(true);
            }
            self.give_back_unposted(to, &may_move);
        }
    }

    /// Lets messages to the peers for which `may_return` holds go by this port again. Returns how many are left.
    pub fn undivert(&mut self, mut may_return: impl FnMut(PeerName) -> bool) -> usize {
        let mut left = 0;
        for endpoint in self.endpoints.iter_mut().filter(|endpoint| endpoint.diverted) {
            if !may_return(endpoint.name) {
                left += 1;
                continue;
            }
            endpoint.diverted = false;
            if let Some(connection) = endpoint.connection.as_deref_mut() {
                connection.divert(false);
            }
        }
        self.diversion.is_on = left > 0;
        left
    }

    /// The peers that are diverted.
    #[must_use]
    pub fn diverted(&self) -> Vec<PeerName> {
        self.endpoints.iter().filter(|endpoint| endpoint.diverted).map(|endpoint| endpoint.name).collect()
    }

    /// Whether messages to this peer are better sent another way: it is diverted, or no connection could be made.
    #[must_use]
    pub fn is_diverted(&self, to: EndpointId) -> bool {
        let never_connected = |endpoint: &crate::endpoint::Endpoint| {
            endpoint.failure.as_ref().is_some_and(|failure| matches!(failure.cause, Cause::Connect(_)))
        };
        self.endpoints.get(to.index() as usize).is_some_and(|endpoint| endpoint.diverted || never_connected(endpoint))
    }

    /// The endpoint by which this port reaches the process; `None` where it does not, or not now.
    #[must_use]
    pub fn reaches(&self, name: PeerName) -> Option<EndpointId> {
        let to = self.known(name)?;
        let endpoint = self.endpoints.get(to.index() as usize)?;
        let usable = !endpoint.forgotten && endpoint.failure.is_none() && !endpoint.diverted && !self.diversion.is_down;
        usable.then_some(to)
    }

    /// Whether messages to the process wait to be posted, or were posted and are not known to be delivered.
    #[must_use]
    pub fn is_busy_with(&self, name: PeerName) -> bool {
        let connection = self.known(name).and_then(|to| self.connection(to));
        connection.is_some_and(|connection| !connection.pending.is_empty() || connection.is_completion_due())
    }

    /// Gives `token` back with the next poll: its message went another way, or `is_lost` there.
    pub fn complete(&mut self, to: EndpointId, token: Token, is_lost: bool) {
        let outcome = if is_lost { Err(Failed { status: Status::FLUSHED, posted: true }) } else { Ok(()) };
        self.overflow.push_back(Event::Completed { token, to, outcome }.into());
    }

    /// Gives the messages back that wait for a connection to be made.
    fn give_back_unposted(&mut self, to: EndpointId, may_move: &impl Fn(u8) -> bool) {
        let Some(connection) = self.connection_mut(to).filter(|connection| connection.state == State::Connecting)
        else {
            return;
        };
        let pending = std::mem::take(&mut connection.pending);
        let moves = |request: &Request| match request.operation {
            Operation::Send { tag, .. } | Operation::SendBytes { tag, .. } => may_move(tag),
            _ => false,
        };
        let (messages, rest): (Vec<Request>, Vec<Request>) = pending.into_iter().partition(moves);
        connection.pending = rest.into();
        connection.set_limit();
        crate::counters::subtract(&self.counters.waiting, messages.len() as u64);
        for request in messages {
            let outcome = Err(Failed { status: Status::FLUSHED, posted: false });
            self.overflow.push_back(Event::Completed { token: request.token, to, outcome }.into());
        }
    }

    fn known(&self, name: PeerName) -> Option<EndpointId> {
        (0..PORTS).find_map(|port| self.connector.known(name, port))
    }
}
