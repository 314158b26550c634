// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fails a connection: reports it once, with the reason, and then fails all its requests. Called by the port's other
//! files; calls only `waiting.rs` and `closing.rs`. Also copies the state of peers to the flight recorder. Grade:
//! setup. Threads: the port's. Tests: `port/tests`.

use super::Port;
use crate::counters::{add, subtract};
use crate::flight::{self, PeerFlight, PeerState};
use crate::transport::adapter::{Adapter, QueuePair as _};
use crate::transport::completion::Completion;
use crate::transport::connections::connection::Phase;
use crate::transport::connections::failure::{Cause, Failure};
use crate::transport::connections::retransmission::Retransmission;
use crate::transport::watch;
use crate::transport::work_request::EndpointId;
use std::io;

/// Most peers whose state is copied at a time.
const AT_ONCE: usize = 64;

impl<A: Adapter> Port<A> {
    /// Gives a connection up: reports it once, fails its waiting requests, and lets the adapter flush the posted ones.
    #[cold]
    pub(super) fn fail(&mut self, to: EndpointId, cause: Cause) {
        if self.give_up(to, cause) {
            self.fail_waiting(to);
        }
    }

    /// Gives a peer up that breaks the rules of the protocol, which the sentence says. Setup.
    #[cold]
    pub fn fail_for_protocol(&mut self, peer: EndpointId, why: String) {
        self.fail(peer, Cause::Protocol(why));
    }

    /// [`Self::fail`], but leaves the waiting requests queued. False if the connection was given up before.
    pub(super) fn give_up(&mut self, to: EndpointId, cause: Cause) -> bool {
        let Some(peer) = self.connections.name(to) else { return false };
        if self.connections.failure(to).is_some() {
            return false;
        }
        // The end of a peer that this process has parted from is no failure.
        let is_expected = self.connections.is_forgotten(to);
        let (mut qp_num, mut retransmission) = (0, Retransmission::default());
        if let Some(connection) = self.connections.get_mut(to) {
            if connection.is_made() {
                subtract(&self.counters.connections, 1);
            }
            if !is_expected {
                // `Tx` has already retired the failed request.
                let failed = u32::from(matches!(cause, Cause::Completion { .. }));
                let failed_before = u32::from(matches!(cause, Cause::GivenUp));
                let has_messages = connection.queue.has_messages_beyond(failed)
                    || self.closing.replaced(to).any(|queue| queue.has_messages_beyond(failed_before));
                self.kept.note_failure(to, has_messages);
            }
            connection.enter(Phase::Failed);
            (qp_num, retransmission) = (connection.number(), connection.retransmission);
            // If even this fails, the queue pair is in error already, or the device is gone.
            let _ = connection.queue.qp_mut().fail();
        }
        self.drop_successor(to);
        self.handshakes.settle(to);
        let (host, port) = (self.directory.host(peer), self.attributes.place());
        let number = self.connections.remote(to).map_or(0, |(_, number)| number);
        let remote_port = match self.directory.entry(peer, number) {
            Some(entry) => format!("port {number} ({})", entry.address),
            None => format!("port {number}"),
        };
        let failure = Failure { peer, host, port, remote_port, qp_num, cause, retransmission };
        if !self.is_closing && !is_expected {
            watch::failed(peer.rank, self.numbers(), &failure);
        }
        add(&self.counters.failed, u64::from(!is_expected));
        flight::show(self.place, &self.counters, 0);
        self.show_peer(to);
        if !is_expected && !self.is_closing {
            self.unprinted.push(failure.to_string());
            self.undelivered.push(Completion::PeerFailed { peer: to });
        }
        self.connections.set_failure(to, Some(failure));
        true
    }

    /// Fails every connection: the port can no longer be used.
    #[cold]
    pub(super) fn lose(&mut self, error: &io::Error, doing: &str) {
        let why = format!("{doing} failed ({error}); see the kernel's log for the device");
        for peer in self.connections.all() {
            if self.connections.get(peer).is_some() {
                self.fail(peer, Cause::Port(why.clone()));
            }
        }
        self.destroy_closing();
    }

    /// Takes the reasons of failed connections, each once. The caller prints them before it passes on any failed
    /// request, because a refused call or a failed request may come before the report of the failure.
    #[must_use]
    pub fn take_unprinted(&mut self) -> Vec<String> {
        std::mem::take(&mut self.unprinted)
    }

    /// Copies the state of some peers to the flight recorder's file, for `ibex top` and `ibex explain --live`: at most
    /// [`AT_ONCE`], so that thousands of peers do not make a call longer. Called after the port's counters were copied.
    pub(super) fn show_peers(&mut self) {
        let count = self.connections.count();
        for _ in 0..count.min(AT_ONCE) {
            let next = if (self.next_shown as usize) < count { self.next_shown } else { 0 };
            self.next_shown = next + 1;
            self.show_peer(EndpointId::from_index(next));
        }
    }

    fn show_peer(&self, to: EndpointId) {
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
            port: self.place,
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
