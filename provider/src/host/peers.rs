// SPDX-License-Identifier: MIT OR Apache-2.0
//! The peers of an endpoint: which address of the address vector (`fi_addr_t`) is which endpoint of the port, and the
//! reverse, for the source of a message.
//!
//! A message names its sender by the port's number of the connection. The address is looked up when a completion is
//! reported, because the program may insert it after the message has arrived. Grade: hot; setup for the first use of
//! an address. Threads: the one that has entered the endpoint. Tests: `hw-tests`.

use std::sync::Arc;

use ibex::messenger::host::{self, Process as _};
use ibex::messenger::rails::lost;
use ibex::messenger::route::Route;
use ibex::peer::PeerName;
use ibex::transport::adapter::verbs::Verbs;
use ibex::transport::{EndpointId, Failure, Port};

use super::{Kind, Shared, State};
use crate::av::AddressVector;
use crate::sys;

/// Source of messages from this endpoint itself.
pub(crate) const OURSELVES: u64 = Route::LOOPBACK.bits();

pub(crate) struct Peers {
    vector: Arc<AddressVector>,
    me: PeerName,
    /// Routes by address; [`Route::UNKNOWN`]: not looked up yet.
    routes: Vec<Route>,
    /// By the port's number of the endpoint.
    known: Vec<Peer>,
    /// Ranks in the job, by the same number, while a trace names them.
    ranks: Vec<u32>,
}

#[derive(Clone, Copy)]
struct Peer {
    /// Its address; `FI_ADDR_NOTAVAIL`: not looked up, or not in the vector.
    address: u64,
    /// Whether messages skip flow control, by [`Kind`].
    skips: [bool; 2],
    /// Whether it has closed its endpoint.
    has_left: bool,
}

impl Peer {
    const UNKNOWN: Peer = Peer { address: sys::FI_ADDR_NOTAVAIL, skips: [false; 2], has_left: false };
}

impl Peers {
    pub(super) fn new(vector: Arc<AddressVector>, me: PeerName) -> Self {
        Peers { vector, me, routes: Vec::new(), known: Vec::new(), ranks: Vec::new() }
    }

    fn known(&mut self, route: Route) -> &mut Peer {
        let index = route.to().index() as usize;
        if index >= self.known.len() {
            self.known.resize(index + 1, Peer::UNKNOWN);
        }
        &mut self.known[index]
    }

    /// Returns the peer of a route; `None` for this endpoint itself.
    #[inline]
    fn get(&self, route: Route) -> Option<&Peer> {
        self.known.get(route.to().index() as usize).filter(|_| route != Route::LOOPBACK)
    }

    /// Returns the address of a source; `FI_ADDR_NOTAVAIL` if it was not looked up.
    #[inline]
    pub(super) fn address(&self, source: u64) -> sys::fi_addr_t {
        self.get(Route::from_bits(source)).map_or(sys::FI_ADDR_NOTAVAIL, |peer| peer.address)
    }

    /// Whether messages of this kind by a route skip flow control. Those to this endpoint itself do not.
    #[inline]
    pub(super) fn skips(&self, route: Route, kind: Kind) -> bool {
        self.get(route).is_some_and(|peer| peer.skips[kind as usize])
    }

    pub(super) fn set_skips(&mut self, route: Route, kind: Kind, skips: bool) {
        self.known(route).skips[kind as usize] = skips;
    }

    pub(super) fn set_left(&mut self, route: Route) {
        self.known(route).has_left = true;
    }

    /// Whether this peer has closed its endpoint.
    pub(super) fn has_left(&self, to: EndpointId) -> bool {
        self.known.get(to.index() as usize).is_some_and(|peer| peer.has_left)
    }

    /// Learns the ranks of the port's endpoints, for tools.
    pub(super) fn learn(&mut self, port: &Port<Verbs>) {
        while let Some(name) = port.peer_name(EndpointId::from_index(self.ranks.len() as u32)) {
            self.ranks.push(name.rank);
        }
    }

    /// Returns the rank in its job of a source or receiver, if it is known.
    pub(super) fn rank(&self, peer: u64) -> Option<u32> {
        match Route::from_bits(peer) {
            Route::LOOPBACK => Some(self.me.rank),
            route => self.ranks.get(route.to().index() as usize).copied(),
        }
    }

    pub(super) fn mark(&mut self, routes: &[Route]) {
        for route in routes {
            self.known(*route).skips = [false; 2];
        }
    }
}

impl State {
    /// Returns the route to an address; `None` if it is not in the address vector.
    #[inline]
    pub(crate) fn route(&mut self, shared: &Shared, address: sys::fi_addr_t) -> Option<Route> {
        match self.peers.routes.get(address as usize) {
            Some(route) if *route != Route::UNKNOWN => Some(*route),
            _ => self.look_up(shared, address),
        }
    }

    #[cold]
    fn look_up(&mut self, shared: &Shared, address: sys::fi_addr_t) -> Option<Route> {
        let name = self.peers.vector.name(address)?;
        let route = if name == self.peers.me {
            Route::LOOPBACK
        } else {
            let mut port = shared.enter_port(0)?;
            let route = Route::new(0, port.peer(name, 0));
            let is_lost = port.failure(route.to()).is_some();
            if self.recording.is_some() {
                self.peers.learn(&port);
            }
            drop(port);
            self.peers.known(route).address = address;
            if is_lost {
                // The operation that asks for the route fails.
                lost::note(shared, self, route);
                return Some(route);
            }
            route
        };
        self.messenger.rails.known.insert(name, route);
        let index = address as usize;
        if index >= self.peers.routes.len() {
            self.peers.routes.resize(index + 1, Route::UNKNOWN);
        }
        self.peers.routes[index] = route;
        Some(route)
    }

    /// Forgets an address that the program has removed. If its peer is lost, the same address, inserted again, leads to
    /// a new connection.
    pub(crate) fn forget(&mut self, shared: &Shared, address: u64) {
        if let Some(route) = self.peers.routes.get_mut(address as usize) {
            *route = Route::UNKNOWN;
        }
        let Some(index) = self.peers.known.iter().position(|peer| peer.address == address) else { return };
        self.peers.known[index].address = sys::FI_ADDR_NOTAVAIL;
        let to = EndpointId::from_index(index as u32);
        if let Some(mut port) = shared.enter_port(0)
            && port.failure(to).is_some()
            && port.peer_name(to).is_some_and(|name| self.peers.vector.address(name).is_none())
        {
            port.forget(to);
        }
    }

    /// Forgets the routes to lost peers, so that each later operation with one looks its route up, and fails.
    pub(super) fn forget_lost(&mut self, shared: &Shared) {
        let Some(port) = shared.enter_port(0) else { return };
        for route in &mut self.peers.routes {
            if *route != Route::LOOPBACK && *route != Route::UNKNOWN && port.failure(route.to()).is_some() {
                *route = Route::UNKNOWN;
            }
        }
    }

    /// Returns the address of a source; `FI_ADDR_NOTAVAIL` if it is not in the address vector. No port is entered.
    pub(crate) fn address_of(&mut self, shared: &Shared, source: u64) -> sys::fi_addr_t {
        match self.peers.address(source) {
            sys::FI_ADDR_NOTAVAIL => self.find_address(shared, source).unwrap_or(sys::FI_ADDR_NOTAVAIL),
            known => known,
        }
    }

    #[cold]
    fn find_address(&mut self, shared: &Shared, source: u64) -> Option<sys::fi_addr_t> {
        if source == OURSELVES {
            return self.peers.vector.address(self.peers.me);
        }
        let route = Route::from_bits(source);
        let name = shared.enter_port(0)?.peer_name(route.to())?;
        let address = self.peers.vector.address(name)?;
        self.peers.known(route).address = address;
        Some(address)
    }
}

impl host::Peers for State {
    fn me(&self) -> u32 {
        self.peers.me.rank
    }

    /// No shared memory, so nobody asks by rank.
    fn name_of(&mut self, _: Kind, _: u64) -> Option<PeerName> {
        None
    }

    fn routes_to(&mut self, shared: &Shared, peer: PeerName) -> Vec<Route> {
        shared.enter_port(0).map(|mut port| Route::new(0, port.peer(peer, 0))).into_iter().collect()
    }

    /// Only called with several rails.
    fn link_changed(&mut self, _: &Shared, _: usize, _: bool) {}

    /// Only called with several rails.
    fn gives_up(&mut self, _: &Shared, _: usize, _: &Failure, _: usize) {}

    fn has_turn(&mut self) {}
}

impl host::SharedMemory for State {}
