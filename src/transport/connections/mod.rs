// SPDX-License-Identifier: MIT OR Apache-2.0
//! The peers of a port, and the connection to each peer in use.
//!
//! Owns the table of endpoints, the index of their names, and the successors of connections in use. A peer takes 32
//! bytes until it gets a connection. Owned by the port. Grade: hot for [`Connections::get_mut`], else setup. Threads:
//! the port's. Tests: below.

pub(super) mod connection;
pub(super) mod failure;
pub(super) mod handshakes;
pub(super) mod probe;
pub(super) mod retransmission;
pub(super) mod search;

use self::connection::Connection;
use self::failure::{Cause, Failure};
use super::adapter::QueuePair;
use super::work_request::EndpointId;
use crate::peer::PeerName;
use std::collections::HashMap;

/// Endpoints are looked up by a peer's name for ports below this number only.
const PORTS: u8 = 16;

#[derive(Debug)]
struct Endpoint<Q> {
    name: PeerName,
    /// The peer's port of this endpoint: its index in the modex. The search may change it (`search.rs`).
    remote_port: u8,
    /// The upper layer has given the peer up ([`crate::transport::Port::forget`]).
    is_forgotten: bool,
    /// Its messages currently use another port (`port/divert.rs`).
    is_diverted: bool,
    /// Made by the first message to or from the peer.
    connection: Option<Box<Connection<Q>>>,
    /// Why the connection failed, or could not be made.
    failure: Option<Box<Failure>>,
}

#[derive(Debug)]
pub(super) struct Connections<Q> {
    endpoints: Vec<Endpoint<Q>>,
    /// Number of endpoints with a connection.
    spoken_to: usize,
    names: HashMap<(PeerName, u8), EndpointId>,
    successors: Vec<(EndpointId, Box<Connection<Q>>)>,
}

impl<Q: QueuePair> Connections<Q> {
    pub(super) fn new() -> Self {
        Connections { endpoints: Vec::new(), spoken_to: 0, names: HashMap::new(), successors: Vec::new() }
    }

    pub(super) fn count(&self) -> usize {
        self.endpoints.len()
    }

    /// Number of endpoints with a connection, ready or in the making.
    pub(super) fn spoken_to(&self) -> usize {
        self.spoken_to
    }

    pub(super) fn all(&self) -> impl Iterator<Item = EndpointId> + use<Q> {
        (0..self.endpoints.len() as u32).map(EndpointId::from_index)
    }

    /// Returns the endpoint for this port of this peer, a new one if it is unknown.
    pub(super) fn learn(&mut self, name: PeerName, remote_port: u8, is_diverted: bool) -> EndpointId {
        if let Some(known) = self.known(name, remote_port) {
            return known;
        }
        let id = EndpointId::from_index(self.endpoints.len() as u32);
        let endpoint =
            Endpoint { name, remote_port, is_forgotten: false, is_diverted, connection: None, failure: None };
        self.endpoints.push(endpoint);
        self.names.insert((name, remote_port), id);
        id
    }

    /// Returns the endpoint for this port of this peer.
    pub(super) fn known(&self, name: PeerName, port: u8) -> Option<EndpointId> {
        self.names.get(&(name, port)).copied()
    }

    /// Returns the endpoint for any port of this peer: a port has one for each process.
    pub(super) fn of_peer(&self, name: PeerName) -> Option<EndpointId> {
        (0..PORTS).find_map(|port| self.known(name, port))
    }

    /// Makes an endpoint stand for another port of its peer.
    pub(super) fn rename(&mut self, peer: EndpointId, remote_port: u8) {
        self.forget_name(peer);
        let Some(endpoint) = self.endpoint_mut(peer) else { return };
        endpoint.remote_port = remote_port;
        let name = endpoint.name;
        self.names.insert((name, remote_port), peer);
    }

    /// Sets whether the upper layer has given a peer up. False if there is no such endpoint.
    pub(super) fn set_forgotten(&mut self, peer: EndpointId, is_forgotten: bool) -> bool {
        let Some(endpoint) = self.endpoint_mut(peer) else { return false };
        endpoint.is_forgotten = is_forgotten;
        true
    }

    /// Removes the endpoint from the index of names.
    pub(super) fn forget_name(&mut self, peer: EndpointId) {
        if let Some(endpoint) = self.endpoint(peer) {
            let name = (endpoint.name, endpoint.remote_port);
            self.names.remove(&name);
        }
    }

    #[inline]
    fn endpoint(&self, peer: EndpointId) -> Option<&Endpoint<Q>> {
        self.endpoints.get(peer.index() as usize)
    }

    fn endpoint_mut(&mut self, peer: EndpointId) -> Option<&mut Endpoint<Q>> {
        self.endpoints.get_mut(peer.index() as usize)
    }

    pub(super) fn name(&self, peer: EndpointId) -> Option<PeerName> {
        Some(self.endpoint(peer)?.name)
    }

    /// Returns the peer's rank, for events; `u32::MAX` if there is no such endpoint.
    pub(super) fn rank(&self, peer: EndpointId) -> u32 {
        self.endpoint(peer).map_or(u32::MAX, |endpoint| endpoint.name.rank)
    }

    /// Returns the peer of an endpoint, and its port.
    pub(super) fn remote(&self, peer: EndpointId) -> Option<(PeerName, u8)> {
        self.endpoint(peer).map(|endpoint| (endpoint.name, endpoint.remote_port))
    }

    pub(super) fn is_forgotten(&self, peer: EndpointId) -> bool {
        self.endpoint(peer).is_some_and(|endpoint| endpoint.is_forgotten)
    }

    /// Whether requests to the peer are accepted: it is known, and its connection has not failed.
    pub(super) fn takes_requests(&self, peer: EndpointId) -> bool {
        self.endpoint(peer).is_some_and(|endpoint| !endpoint.is_forgotten && endpoint.failure.is_none())
    }

    pub(super) fn is_diverted(&self, peer: EndpointId) -> bool {
        self.endpoint(peer).is_some_and(|endpoint| endpoint.is_diverted)
    }

    /// Sets whether the peer's new messages use another port.
    pub(super) fn divert(&mut self, peer: EndpointId, is_diverted: bool) {
        let Some(endpoint) = self.endpoint_mut(peer) else { return };
        endpoint.is_diverted = is_diverted;
        if let Some(connection) = endpoint.connection.as_deref_mut() {
            connection.divert(is_diverted);
        }
    }

    pub(super) fn failure(&self, peer: EndpointId) -> Option<&Failure> {
        self.endpoint(peer)?.failure.as_deref()
    }

    /// Whether no connection to the peer could be made.
    pub(super) fn never_connected(&self, peer: EndpointId) -> bool {
        self.failure(peer).is_some_and(|failure| matches!(failure.cause, Cause::Connect { .. }))
    }

    /// Sets the failure of a peer; with `None` a connection may be made again.
    pub(super) fn set_failure(&mut self, peer: EndpointId, failure: Option<Failure>) {
        if let Some(endpoint) = self.endpoint_mut(peer) {
            endpoint.failure = failure.map(Box::new);
        }
    }

    /// Hot.
    #[inline]
    pub(super) fn get(&self, peer: EndpointId) -> Option<&Connection<Q>> {
        self.endpoints.get(peer.index() as usize)?.connection.as_deref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, peer: EndpointId) -> Option<&mut Connection<Q>> {
        self.endpoints.get_mut(peer.index() as usize)?.connection.as_deref_mut()
    }

    /// Returns the endpoint whose connection has the queue pair of this number.
    pub(super) fn of_queue_pair(&self, number: u32) -> Option<EndpointId> {
        self.all().find(|peer| self.get(*peer).is_some_and(|connection| connection.number() == number))
    }

    pub(super) fn put(&mut self, peer: EndpointId, connection: Box<Connection<Q>>) {
        if let Some(endpoint) = self.endpoint_mut(peer) {
            let is_first = endpoint.connection.replace(connection).is_none();
            self.spoken_to += usize::from(is_first);
        }
    }

    pub(super) fn take(&mut self, peer: EndpointId) -> Option<Box<Connection<Q>>> {
        let taken = self.endpoint_mut(peer)?.connection.take()?;
        self.spoken_to -= 1;
        Some(taken)
    }

    pub(super) fn put_successor(&mut self, peer: EndpointId, connection: Box<Connection<Q>>) {
        self.successors.push((peer, connection));
    }

    pub(super) fn take_successor(&mut self, peer: EndpointId) -> Option<Box<Connection<Q>>> {
        let place = self.successors.iter().position(|(of, _)| *of == peer)?;
        Some(self.successors.swap_remove(place).1)
    }

    pub(super) fn has_successor(&self, peer: EndpointId) -> bool {
        self.successors.iter().any(|(of, _)| *of == peer)
    }

    /// Returns the connection whose handshake is in progress: the successor, if there is one.
    pub(super) fn making(&mut self, peer: EndpointId) -> Option<&mut Connection<Q>> {
        if let Some(place) = self.successors.iter().position(|(of, _)| *of == peer) {
            return Some(&mut *self.successors[place].1);
        }
        self.get_mut(peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_never_spoken_to_takes_at_most_64_bytes() {
        let bytes = size_of::<Endpoint<ibex_ffi::verbs::QueuePair>>();
        assert!(bytes <= 64, "{bytes}");
    }
}
