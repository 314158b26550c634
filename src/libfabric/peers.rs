// SPDX-License-Identifier: MIT OR Apache-2.0
//! The peers of an endpoint: which address of the address vector (`fi_addr_t`) is which endpoint of the port, and the
//! reverse, for the source of a message.
//!
//! A message names its sender by the port's number of the connection. The address is looked up when a completion is
//! reported, because the program may insert it after the message has arrived. Grade: hot; setup for the first use of
//! an address. Threads: the one that has entered the endpoint. Tests: below, `simulation`,
//! `hw-tests`.

use std::sync::Arc;

use crate::messenger::host::{self, Process as _};
use crate::messenger::rails::lost;
use crate::messenger::route::Route;
use crate::peer::PeerName;
use crate::transport::adapter::Adapter;
use crate::transport::{EndpointId, Failure, Port};

use super::environment::{Environment, Vector};
use super::{Kind, Shared, State, fi};

/// Source of messages from this endpoint itself.
pub const OURSELVES: u64 = Route::LOOPBACK.bits();

pub(super) struct Peers<V> {
    vector: Arc<V>,
    me: PeerName,
    /// Routes by address and [`Kind`]; [`Route::UNKNOWN`]: not looked up yet. One without a mark is that of a peer
    /// whose messages skip flow control, at the address in `addresses`.
    routes: Vec<[Route; 2]>,
    /// Address by the port's number of the endpoint; `FI_ADDR_NOTAVAIL`: not looked up, or not in the vector.
    addresses: Vec<fi::Address>,
    /// Whether the peer has closed its endpoint, by the same number.
    have_left: Vec<bool>,
    /// Ranks in the job, by the same number, while a trace names them.
    ranks: Vec<u32>,
}

/// Returns an entry of a table, which grows with `missing` entries as far as it has to.
fn entry<T: Copy>(table: &mut Vec<T>, index: usize, missing: T) -> &mut T {
    if index >= table.len() {
        table.resize(index + 1, missing);
    }
    &mut table[index]
}

impl<V: Vector> Peers<V> {
    pub(super) fn new(vector: Arc<V>, me: PeerName) -> Self {
        Peers { vector, me, routes: Vec::new(), addresses: Vec::new(), have_left: Vec::new(), ranks: Vec::new() }
    }

    /// Returns the routes to an address, if there is one to this peer.
    fn routes_at(&mut self, address: fi::Address, to: Route) -> Option<&mut [Route; 2]> {
        self.routes.get_mut(address as usize).filter(|routes| routes[0].unmarked() == to)
    }

    /// Notes the address of a peer.
    fn set_address(&mut self, of: Route, address: fi::Address) {
        let known = entry(&mut self.addresses, of.to().index() as usize, fi::FI_ADDR_NOTAVAIL);
        let former = std::mem::replace(known, address);
        if former != address
            && let Some(routes) = self.routes_at(former, of)
        {
            *routes = [of.marked(); 2];
        }
    }

    /// Notes the route to an address.
    fn set_route(&mut self, address: fi::Address, route: Route) {
        let marked = if route == Route::LOOPBACK { route } else { route.marked() };
        *entry(&mut self.routes, address as usize, [Route::UNKNOWN; 2]) = [marked; 2];
    }

    /// Returns the address of a source; `FI_ADDR_NOTAVAIL` if it was not looked up. Of a peer by the only rail, the
    /// source is the number of the endpoint.
    #[inline(always)]
    pub(super) fn address(&self, source: u64) -> fi::Address {
        self.addresses.get(source as usize).copied().unwrap_or(fi::FI_ADDR_NOTAVAIL)
    }

    /// Returns the route to an address to which messages of this kind skip flow control. Those to this endpoint itself
    /// do not.
    #[inline(always)]
    pub(super) fn short_cut(&self, address: fi::Address, kind: Kind) -> Option<Route> {
        let route = self.routes.get(address as usize)?[kind as usize];
        route.is_open_single_rail().then_some(route)
    }

    /// Whether messages of this kind by a route skip flow control.
    pub(super) fn skips(&self, route: Route, kind: Kind) -> bool {
        self.short_cut(self.address(route.bits()), kind) == Some(route)
    }

    pub(super) fn set_skips(&mut self, route: Route, kind: Kind, skips: bool) {
        if let Some(routes) = self.routes_at(self.address(route.bits()), route) {
            routes[kind as usize] = if skips { route } else { route.marked() };
        }
    }

    pub(super) fn set_left(&mut self, route: Route) {
        *entry(&mut self.have_left, route.to().index() as usize, false) = true;
    }

    /// Whether this peer has closed its endpoint.
    pub(super) fn has_left(&self, to: EndpointId) -> bool {
        self.have_left.get(to.index() as usize).is_some_and(|has_left| *has_left)
    }

    /// Learns the ranks of the port's endpoints, for tools.
    pub(super) fn learn(&mut self, port: &Port<impl Adapter>) {
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
            for kind in [Kind::Tagged, Kind::Message] {
                self.set_skips(*route, kind, false);
            }
        }
    }
}

impl<E: Environment> State<E> {
    /// Returns the route to an address; `None` if it is not in the address vector.
    #[inline]
    pub fn route(&mut self, shared: &Shared<E::Adapter>, address: fi::Address) -> Option<Route> {
        match self.peers.routes.get(address as usize) {
            Some([route, _]) if *route != Route::UNKNOWN => Some(route.unmarked()),
            _ => self.look_up(shared, address),
        }
    }

    #[cold]
    fn look_up(&mut self, shared: &Shared<E::Adapter>, address: fi::Address) -> Option<Route> {
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
            self.peers.set_address(route, address);
            if is_lost {
                // The operation that asks for the route fails.
                lost::note(shared, self, route);
                return Some(route);
            }
            route
        };
        self.messenger.rails.known.insert(name, route);
        self.peers.set_route(address, route);
        Some(route)
    }

    /// Returns the name of the endpoint itself.
    pub fn name(&self) -> PeerName {
        self.peers.me
    }

    /// Forgets an address that the program has removed. If its peer is lost, the same address, inserted again, leads to
    /// a new connection.
    pub fn forget(&mut self, shared: &Shared<E::Adapter>, address: fi::Address) {
        if let Some(routes) = self.peers.routes.get_mut(address as usize) {
            *routes = [Route::UNKNOWN; 2];
        }
        let Some(index) = self.peers.addresses.iter().position(|known| *known == address) else { return };
        self.peers.addresses[index] = fi::FI_ADDR_NOTAVAIL;
        let to = EndpointId::from_index(index as u32);
        if let Some(mut port) = shared.enter_port(0)
            && port.failure(to).is_some()
            && port.peer_name(to).is_some_and(|name| self.peers.vector.address(name).is_none())
        {
            port.forget(to);
        }
    }

    /// Forgets the routes to lost peers, so that each later operation with one looks its route up, and fails.
    pub fn forget_lost(&mut self, shared: &Shared<E::Adapter>) {
        let Some(port) = shared.enter_port(0) else { return };
        for routes in &mut self.peers.routes {
            let [route, _] = *routes;
            if route != Route::LOOPBACK && route != Route::UNKNOWN && port.failure(route.to()).is_some() {
                *routes = [Route::UNKNOWN; 2];
            }
        }
    }

    /// Returns the address of a source; `FI_ADDR_NOTAVAIL` if it is not in the address vector. No port is entered.
    pub fn address_of(&mut self, shared: &Shared<E::Adapter>, source: u64) -> fi::Address {
        match self.peers.address(source) {
            fi::FI_ADDR_NOTAVAIL => self.find_address(shared, source).unwrap_or(fi::FI_ADDR_NOTAVAIL),
            known => known,
        }
    }

    #[cold]
    fn find_address(&mut self, shared: &Shared<E::Adapter>, source: u64) -> Option<fi::Address> {
        if source == OURSELVES {
            return self.peers.vector.address(self.peers.me);
        }
        let route = Route::from_bits(source);
        let name = shared.enter_port(0)?.peer_name(route.to())?;
        let address = self.peers.vector.address(name)?;
        self.peers.set_address(route, address);
        Some(address)
    }
}

impl<E: Environment> host::Peers for State<E> {
    fn me(&self) -> u32 {
        self.peers.me.rank
    }

    /// No shared memory, so nobody asks by rank.
    fn name_of(&mut self, _: Kind, _: u64) -> Option<PeerName> {
        None
    }

    fn routes_to(&mut self, shared: &Shared<E::Adapter>, peer: PeerName) -> Vec<Route> {
        shared.enter_port(0).map(|mut port| Route::new(0, port.peer(peer, 0))).into_iter().collect()
    }

    /// Only called with several rails.
    fn link_changed(&mut self, _: &Shared<E::Adapter>, _: usize, _: bool) {}

    /// Only called with several rails.
    fn gives_up(&mut self, _: &Shared<E::Adapter>, _: usize, _: &Failure, _: usize) {}

    fn has_turn(&mut self) {
        self.has_more = true;
    }
}

impl<E: Environment> host::SharedMemory for State<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of peers whose addresses nobody looks up.
    struct NoVector;

    impl Vector for NoVector {
        fn name(&self, _: fi::Address) -> Option<PeerName> {
            None
        }

        fn address(&self, _: PeerName) -> Option<fi::Address> {
            None
        }
    }

    #[test]
    fn messages_skip_flow_control_by_one_address_of_a_peer_until_it_is_marked() {
        let mut peers = Peers::new(Arc::new(NoVector), PeerName { job: 1, rank: 1 });
        let route = Route::new(0, EndpointId::from_index(3));
        let short_cuts = |peers: &Peers<NoVector>| {
            let of_kind = |kind| [0, 5].map(|address| peers.short_cut(address, kind));
            [of_kind(Kind::Tagged), of_kind(Kind::Message)]
        };
        for address in [5, 0] {
            peers.set_address(route, address);
            peers.set_route(address, route);
            assert_eq!((short_cuts(&peers), peers.address(route.bits())), ([[None; 2]; 2], address));
            peers.set_skips(route, Kind::Tagged, true);
            assert!(peers.skips(route, Kind::Tagged) && !peers.skips(route, Kind::Message));
        }
        assert_eq!(
            short_cuts(&peers),
            [[Some(route), None], [None; 2]],
            "the other address is not the peer's any more"
        );
        peers.mark(&[route]);
        assert_eq!(short_cuts(&peers), [[None; 2]; 2]);
        assert!(!peers.skips(route, Kind::Tagged));
        peers.set_route(1, Route::LOOPBACK);
        peers.set_skips(Route::LOOPBACK, Kind::Tagged, true);
        assert_eq!(peers.short_cut(1, Kind::Tagged), None);
    }
}
