// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peers that share no communicator with this process any more: this process sends nothing to them, and they may end at
//! any time. Only missing acknowledgements show the end of such a peer. So the port probes it, at growing intervals,
//! and destroys its connection when no acknowledgement comes; if the two share a communicator again before, they use it
//! again. Grade: setup. Tests: `tests/partings.rs`.

use super::Port;
use crate::transport::adapter::Adapter;
use crate::transport::connections::probe::Parted;
use crate::transport::tx::request::Request;
use crate::transport::work_request::EndpointId;
use std::time::Duration;

impl<A: Adapter> Port<A> {
    /// Parts from a peer: its failure is not reported, and its connection ends when the peer has gone. Requests to it
    /// are refused until [`Port::rejoin`]. Setup.
    pub fn part(&mut self, peer: EndpointId) {
        if !self.connections.is_forgotten(peer) && self.connections.give_up(peer) {
            self.parted.push(Parted::new(peer, self.adapter.now()));
        }
    }

    /// Takes a peer back that this process has parted from. Setup.
    pub fn rejoin(&mut self, peer: EndpointId) {
        self.parted.retain(|parted| parted.peer != peer);
        self.connections.take_back(peer);
    }

    /// Whether the connection to a parted peer is gone.
    #[must_use]
    pub fn has_gone(&self, peer: EndpointId) -> bool {
        self.connections.is_forgotten(peer) && self.connections.get(peer).is_none()
    }

    /// Probes the parted peers that are due, and destroys the connections to those that have gone.
    #[cold]
    pub(super) fn look_after_parted(&mut self, now: Duration) {
        let mut parted = std::mem::take(&mut self.parted);
        // [`Port::peer`] may have taken a peer back.
        parted.retain(|parted| self.connections.is_forgotten(parted.peer));
        parted.retain_mut(|parted| {
            if self.connections.failure(parted.peer).is_some() {
                self.drop_connection(parted.peer);
                self.connections.forget_failure(parted.peer);
            } else if parted.is_due(now) {
                self.ask(parted.peer);
            }
            self.connections.get(parted.peer).is_some()
        });
        self.parted = parted;
    }

    /// Asks a peer for an acknowledgement. `post_nop` would refuse a peer that is given up.
    fn ask(&mut self, peer: EndpointId) {
        let Some(connection) = self.connections.get_mut(peer).filter(|connection| connection.is_made()) else { return };
        self.tx.wait(&mut connection.queue, peer, Request::NOTHING, &self.counters);
        self.work_backlog();
    }
}
