// SPDX-License-Identifier: MIT OR Apache-2.0
//! Multi-rail interface for a caller that chooses among several ports itself: whether a port is ready for a peer, and
//! which messages of a failed connection are lost or were never sent.
//!
//! The caller can take out messages that never reached the adapter, in order, to send them by another port: those of a
//! connection in progress at any time ([`Port::take_unposted`]), those of a failed one if they were kept
//! ([`Port::keep_unposted`]). For messages that the adapter had, [`Port::has_lost`] says whether any may be missing at
//! the peer. Called by the plugin. Grade: setup, but for [`Port::note_message`]. Threads: the port's. Tests:
//! `tests/rails.rs`, and `hw-tests`.

use super::Port;
use crate::counters::subtract;
use crate::transport::adapter::Adapter;
use crate::transport::connections::connection::{Connection, Phase};
use crate::transport::kept::Unposted;
use crate::transport::tx::request::Request;
use crate::transport::work_request::EndpointId;

impl<A: Adapter> Port<A> {
    /// Keeps messages with this tag that wait for a connection when it fails, for [`Port::take_unposted`]. Their tokens
    /// do not come back to the caller.
    pub fn keep_unposted(&mut self, tag: u8) {
        self.kept.tag = Some(tag);
    }

    /// Takes, in order, the messages with the kept tag that wait for a connection to be made, or did when it failed.
    pub fn take_unposted(&mut self, to: EndpointId) -> Vec<Unposted> {
        let mut taken = self.kept.take(to);
        let tag = self.kept.tag;
        let connecting = self.connections.get_mut(to).filter(|connection| connection.phase() == Phase::Connecting);
        if let Some(connection) = connecting {
            let waiting = connection.queue.take_waiting(|request| tag.is_some() && request.message_tag() == tag);
            subtract(&self.counters.waiting, waiting.len() as u64);
            taken.extend(waiting.into_iter().filter_map(Unposted::of));
        }
        taken
    }

    /// Whether this connection failed with possibly undelivered messages.
    #[must_use]
    pub fn has_lost(&self, to: EndpointId) -> bool {
        self.kept.has_lost(to)
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
    #[must_use]
    pub fn queue_pair(&self, to: EndpointId) -> Option<u32> {
        self.connections.get(to).map(Connection::number)
    }

    /// Returns the number of the peer's port that the endpoint stands for.
    #[must_use]
    pub fn partner(&self, to: EndpointId) -> Option<u8> {
        self.connections.remote(to).map(|(_, port)| port)
    }
}
