// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies the state of peers to the flight recorder's file, for `ibex top` and `ibex explain --live`. Called after the
//! port's counters were copied, and when a connection fails. Copies a bounded number of peers each time, so that
//! thousands of peers cost no more at once. Cold. Threads: the port's. Tests: `tests.rs`.

use super::Port;
use crate::flight::{self, PeerFlight, PeerState};
use crate::transport::adapter::Adapter;
use crate::transport::connections::connection::Phase;
use crate::transport::work_request::EndpointId;

const AT_ONCE: usize = 64;

impl<A: Adapter> Port<A> {
    pub(super) fn show_peers(&mut self) {
        let count = self.connections.count();
        for _ in 0..count.min(AT_ONCE) {
            let next = if (self.next_shown as usize) < count { self.next_shown } else { 0 };
            self.next_shown = next + 1;
            self.show_peer(EndpointId::from_index(next));
        }
    }

    pub(super) fn show_peer(&self, to: EndpointId) {
        if let Some(peer) = self.peer_shown(to) {
            flight::show_peer(&peer);
        }
    }

    pub(super) fn peer_shown(&self, to: EndpointId) -> Option<PeerFlight> {
        let (peer, connection) = (self.connections.name(to)?, self.connections.get(to)?);
        let (queue, retransmission) = (&connection.queue, connection.retransmission);
        let state = match connection.phase() {
            Phase::Connecting => PeerState::Connecting,
            Phase::Ready => PeerState::Ready,
            Phase::Diverted => PeerState::Diverted,
            Phase::Failed => PeerState::Failed,
        };
        Some(PeerFlight {
            peer,
            port: self.index(),
            state,
            queue_pairs: (connection.number(), connection.handshake.remote_queue_pair()),
            posted: queue.posted().into(),
            in_flight: queue.in_flight(),
            waiting: u32::try_from(queue.waiting()).unwrap_or(u32::MAX),
            asked: connection.handshake.times_asked(),
            timeout: retransmission.exponent,
            retries: retransmission.retries,
            time: 0,
        })
    }
}
