// SPDX-License-Identifier: MIT OR Apache-2.0
//! Diverts messages from a port that has lost its link: refuses new messages; the caller sends them by another port.
//!
//! A peer is *diverted* while this port has no link. The port refuses a message to it; a message that waits for a
//! connection may come back unposted; operations on memory, whose keys belong to this port, still go to the adapter,
//! which retries them for seconds. The caller decides when to divert peers and when they return. Called by the
//! messenger. Grade: setup, but for [`Port::note_message`] and [`Port::sent`]; a diverted peer costs other messages
//! nothing. Threads: the port's. Tests: `port/tests`, and `hw-tests`.
//!
//! [`Port::take_unposted`] takes the messages to a peer that were never posted, in order, and the caller sends them by
//! another port. If the connection has failed, they are there only if [`Port::keep_unposted`] was called before.
//! [`Port::has_lost`] says whether the peer may miss a message that was posted.

use super::Port;
use crate::counters::subtract;
use crate::peer::PeerName;
use crate::transport::adapter::Adapter;
use crate::transport::completion::{Completion, Failed, Token};
use crate::transport::connections::connection::{Connection, Phase};
use crate::transport::kept::Unposted;
use crate::transport::tx::request::Request;
use crate::transport::work_request::EndpointId;
use ibex_ffi::verbs::Status;

/// The caller's messages to a peer by this port, if it uses several ports. The port only keeps the record.
#[derive(Clone, Copy, Debug, Default)]
pub struct SentMessages {
    /// Number of messages since the port became the peer's home.
    pub count: u32,
    /// Whether the port is the peer's home: the one that its messages use now.
    pub is_home: bool,
    /// Whether the connection has failed and was given up.
    pub is_given_up: bool,
}

impl<A: Adapter> Port<A> {
    /// Returns the caller's record of its messages to a peer.
    #[inline]
    pub fn sent(&mut self, to: EndpointId) -> &mut SentMessages {
        let at = to.index() as usize;
        if at >= self.sent.len() {
            self.sent.resize(at + 1, SentMessages::default());
        }
        &mut self.sent[at]
    }

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
    pub fn is_down(&self) -> bool {
        self.diversion.is_down
    }

    /// Diverts every peer, new ones included, until [`Port::undivert`]. Messages that wait for a connection to be made
    /// come back if `may_move` holds for their tag.
    pub fn divert_all(&mut self, may_move: impl Fn(u8) -> bool) {
        self.diversion.is_on = true;
        for to in self.connections.all() {
            self.connections.divert(to, true);
            if self.connections.get(to).is_some_and(|connection| connection.phase() == Phase::Connecting) {
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
    pub fn diverted(&self) -> Vec<PeerName> {
        let diverted = self.connections.all().filter(|to| self.connections.is_diverted(*to));
        diverted.filter_map(|to| self.connections.name(to)).collect()
    }

    /// Whether messages to this peer should use another port: it is diverted, or no connection could be made.
    pub fn is_diverted(&self, to: EndpointId) -> bool {
        self.connections.is_diverted(to) || self.connections.never_connected(to)
    }

    /// Whether requests to this peer can use the port now: it has a link, and the connection is there or may be made.
    pub fn is_usable(&self, to: EndpointId) -> bool {
        !self.diversion.is_down && self.connections.takes_requests(to)
    }

    /// Returns the endpoint by which this port reaches the process; `None` if there is none, or not now.
    pub fn reaches(&self, name: PeerName) -> Option<EndpointId> {
        let to = self.connections.of_peer(name)?;
        (self.is_usable(to) && !self.connections.is_diverted(to)).then_some(to)
    }

    /// Whether messages to the process wait, or were posted and may not be delivered yet.
    pub fn is_busy_with(&self, name: PeerName) -> bool {
        let connection = self.connections.of_peer(name).and_then(|to| self.connections.get(to));
        connection.is_some_and(|connection| connection.queue.waiting() > 0 || connection.queue.is_completion_due())
    }

    /// Reports `token` with the next poll: the caller sent its message by another port, or has lost it (`is_lost`).
    pub fn complete(&mut self, to: EndpointId, token: Token, is_lost: bool) {
        let outcome = if is_lost { Err(Failed { status: Status::FLUSHED, posted: true }) } else { Ok(()) };
        self.undelivered.push(Completion::Request { token, to, outcome });
    }

    /// Keeps messages with this tag that wait for a connection when it fails, for [`Port::take_unposted`]. Their tokens
    /// do not come back to the caller.
    pub fn keep_unposted(&mut self, tag: u8) {
        self.kept.tag = Some(tag);
    }

    /// Takes, in order, the messages with the kept tag that wait for a connection, or that waited for one when it
    /// failed. Drops a turn of such messages.
    pub fn take_unposted(&mut self, to: EndpointId) -> Vec<Unposted> {
        let mut taken = self.kept.take(to);
        let tag = self.kept.tag;
        if let Some(connection) = self.connections.get_mut(to) {
            let leaves = |request: &Request| tag.is_some() && request.message_tag() == tag;
            let waiting = connection.queue.take_waiting(leaves);
            subtract(&self.counters.waiting, waiting.len() as u64);
            taken.extend(waiting.into_iter().filter_map(Unposted::of));
        }
        taken
    }

    /// Whether this connection failed with possibly undelivered messages, or the caller has dropped some.
    pub fn has_lost(&self, to: EndpointId) -> bool {
        self.kept.has_lost(to)
    }

    /// Notes that the caller has dropped messages to this peer.
    pub fn note_lost(&mut self, to: EndpointId) {
        self.kept.note_lost(to);
    }

    /// Notes that the last request posted to this peer was a message. The port itself notes waiting messages. Hot.
    #[inline]
    pub fn note_message(&mut self, to: EndpointId) {
        if let Some(connection) = self.connections.get_mut(to) {
            connection.queue.note_message();
        }
    }

    /// Whether requests to this peer are posted at once, as far as there is room: it is connected, there is a link, and
    /// it is not diverted. Begins a connection if there is none.
    pub fn is_ready(&mut self, to: EndpointId) -> bool {
        if self.diversion.is_down {
            return false;
        }
        if let Some(connection) = self.connections.get(to) {
            return connection.phase() == Phase::Ready;
        }
        // Refused if the connection has failed: then it is not ready either.
        let _ = self.queue(to, Request::NOTHING);
        false
    }

    /// Returns the number of the queue pair to the peer; `None` if there is none yet.
    pub fn queue_pair(&self, to: EndpointId) -> Option<u32> {
        self.connections.get(to).map(Connection::number)
    }

    /// Returns the number of the peer's port that the endpoint is for.
    pub fn partner(&self, to: EndpointId) -> Option<u8> {
        self.connections.remote(to).map(|(_, port)| port)
    }
}
