// SPDX-License-Identifier: MIT OR Apache-2.0
//! Diverts messages from a port that has lost its link: refuses new messages; the caller sends them by another port.
//!
//! A peer is *diverted* while this port has no link. A message to it is refused; a message that waits for a connection
//! may come back unposted; all others (operations on memory, whose keys belong to this port) still go to the adapter,
//! which retries them for seconds. The caller decides when to divert peers and when they return. Called by the plugin.
//! Setup grade; a diverted peer costs other messages nothing. Threads: the port's. Tests: `tests.rs`, and `hw-tests`.

use super::Port;
use crate::peer::PeerName;
use crate::transport::adapter::Adapter;
use crate::transport::completion::{Completion, Failed, Token};
use crate::transport::connections::connection::Phase;
use crate::transport::work_request::EndpointId;
use ibex_ffi::verbs::Status;

impl<A: Adapter> Port<A> {
    /// Handles the adapter's report that the port has a link again, or has lost it.
    #[cold]
    pub(super) fn link_changed(&mut self, is_up: bool) {
        if self.diversion.is_down == is_up && !self.is_closing {
            self.diversion.is_down = !is_up;
            self.undelivered.push(Completion::LinkChanged { is_up });
        }
    }

    /// Repeats the report of a restored link while peers are still diverted.
    pub(super) fn remind_of_diverted(&mut self) {
        if self.diversion.is_on && !self.diversion.is_down && !self.is_closing {
            self.undelivered.push(Completion::LinkChanged { is_up: true });
        }
    }

    /// Whether the port has no link.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.diversion.is_down
    }

    /// Diverts every peer, new ones included, until [`Port::undivert`]. Messages that wait for a connection to be made
    /// come back if `may_move` holds for their tag.
    pub fn divert_all(&mut self, may_move: impl Fn(u8) -> bool) {
        self.diversion.is_on = true;
        for to in self.connections.all() {
            self.connections.divert(to, true);
            let is_connecting = |phase| phase == Phase::Connecting;
            if self.connections.get(to).is_some_and(|connection| is_connecting(connection.phase())) {
                self.give_back_waiting(to, |request| request.message_tag().is_some_and(&may_move));
            }
        }
    }

    /// Ends the diversion of the peers for which `may_return` holds. Returns the number of peers still diverted.
    pub fn undivert(&mut self, mut may_return: impl FnMut(PeerName) -> bool) -> usize {
        for to in self.connections.all() {
            if self.connections.is_diverted(to) && self.connections.name(to).is_some_and(&mut may_return) {
                self.connections.divert(to, false);
            }
        }
        let left = self.connections.all().filter(|to| self.connections.is_diverted(*to)).count();
        self.diversion.is_on = left > 0;
        left
    }

    /// Returns the diverted peers.
    #[must_use]
    pub fn diverted(&self) -> Vec<PeerName> {
        let diverted = self.connections.all().filter(|to| self.connections.is_diverted(*to));
        diverted.filter_map(|to| self.connections.name(to)).collect()
    }

    /// Whether messages to this peer should use another port: it is diverted, or no connection could be made.
    #[must_use]
    pub fn is_diverted(&self, to: EndpointId) -> bool {
        self.connections.is_diverted(to) || self.connections.never_connected(to)
    }

    /// Returns the endpoint by which this port reaches the process; `None` if there is none, or not now.
    #[must_use]
    pub fn reaches(&self, name: PeerName) -> Option<EndpointId> {
        let to = self.connections.of_peer(name)?;
        let is_diverted = self.connections.is_diverted(to) || self.diversion.is_down;
        (self.connections.takes_requests(to) && !is_diverted).then_some(to)
    }

    /// Whether messages to the process wait, or were posted and may not be delivered yet.
    #[must_use]
    pub fn is_busy_with(&self, name: PeerName) -> bool {
        let connection = self.connections.of_peer(name).and_then(|to| self.connections.get(to));
        connection.is_some_and(|connection| connection.queue.waiting() > 0 || connection.queue.is_completion_due())
    }

    /// Returns `token` with the next poll: its message went by another port, or `is_lost`.
    pub fn complete(&mut self, to: EndpointId, token: Token, is_lost: bool) {
        let outcome = if is_lost { Err(Failed { status: Status::FLUSHED, posted: true }) } else { Ok(()) };
        self.undelivered.push(Completion::Request { token, to, outcome });
    }
}
