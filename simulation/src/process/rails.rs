// SPDX-License-Identifier: MIT OR Apache-2.0
//! The routes to peers: which ports reach a peer, which one its messages use, and which read a long message. With one
//! port, a route is its endpoint. Grade: test. Threads: one.

use ibex::messenger::header::PortKey;
use ibex::messenger::rails::Peer;
use ibex::messenger::route::{Account, Route};
use ibex_ffi::verbs::Access;

use super::{Process, name};

/// Shortest message that several ports read, bytes.
pub(super) const SHORTEST: usize = 64 << 10;

impl Process {
    /// Returns the route to a rank.
    pub(super) fn route(&mut self, to: u32) -> Route {
        if to == self.rank {
            return Route::LOOPBACK;
        }
        if let Some(route) = self.routes.get(&to) {
            return *route;
        }
        let route = if self.is_multi_rail() {
            let peer = self.add_peer(to);
            self.multi_rail.peers[peer].routes[0]
        } else {
            Route::new(0, self.port(0).peer(name(to), 0))
        };
        self.routes.insert(to, route);
        route
    }

    /// Adds a peer, which all ports reach. Returns its index.
    fn add_peer(&mut self, to: u32) -> usize {
        if let Some(known) = self.multi_rail.by_name.get(&name(to)) {
            return *known;
        }
        let routes =
            (0..self.rails.len()).map(|rail| Route::new(rail, self.port(rail).peer(name(to), rail as u8))).collect();
        let peer = Peer::new(routes, [self.rank, to], |route| self.is_usable(route));
        self.multi_rail.add(name(to), peer)
    }

    /// Returns the index of the peer of a route.
    pub(super) fn peer_of(&mut self, route: Route) -> Option<usize> {
        if let Some(peer) = self.multi_rail.peer_of(route) {
            return Some(peer);
        }
        let peer = self.port(route.rail()).peer_name(route.to())?;
        Some(self.add_peer(peer.rank))
    }

    /// Returns the rank of the peer of a route.
    pub(super) fn rank_of(&mut self, route: Route) -> i32 {
        self.port(route.rail()).peer_name(route.to()).expect("a route leads to a peer").rank as i32
    }

    /// Returns the route that messages to the peer of `route` use now.
    pub(super) fn home_of(&mut self, route: Route) -> Route {
        if !self.is_multi_rail() || route == Route::LOOPBACK {
            return route;
        }
        self.peer_of(route).map_or(route, |peer| self.multi_rail.peers[peer].home)
    }

    pub(super) fn account_of(&mut self, route: Route) -> Account {
        if !self.is_multi_rail() {
            return Account(route);
        }
        self.peer_of(route).map_or(Account(route), |peer| self.multi_rail.peers[peer].account())
    }

    pub(super) fn is_usable(&self, route: Route) -> bool {
        let port = self.rails[route.rail()].port.as_ref().expect("nothing is called while the port polls");
        !port.is_down() && port.failure(route.to()).is_none()
    }

    /// Returns the number of messages to the endpoint of a route since it became the peer's home.
    pub(super) fn sent(&mut self, route: Route) -> &mut u32 {
        let (sent, at) = (&mut self.rails[route.rail()].sent, route.to().index() as usize);
        if at >= sent.len() {
            sent.resize(at + 1, 0);
        }
        &mut sent[at]
    }

    /// Counts a message that was given to a port, with several rails. `is_posted`: the adapter has it.
    pub(super) fn note_sent(&mut self, route: Route, is_posted: bool) {
        if !self.is_multi_rail() {
            return;
        }
        let sent = self.sent(route);
        *sent = sent.wrapping_add(1);
        if is_posted {
            self.port(route.rail()).note_message(route.to());
        }
    }

    /// Registers the memory of a long message with the ports other than that of `home`.
    pub(super) fn expose_by_others(&mut self, home: Route, extent: (u64, usize)) -> Vec<(usize, u32)> {
        if !self.is_multi_rail() || extent.1 < SHORTEST {
            return Vec::new();
        }
        let Some(peer) = self.peer_of(home) else { return Vec::new() };
        let mut routes = self.multi_rail.peers[peer].routes.to_vec();
        routes.retain(|route| route.rail() != home.rail() && self.is_usable(*route));
        let register = |route: Route| {
            let key = self.memory.register(self.rails[route.rail()].place, extent, Access::REMOTE_READ)?;
            Some((route.rail(), key))
        };
        routes.into_iter().filter_map(register).collect()
    }

    /// Returns the routes by which this process can read a message that was announced by `from`, each with its key.
    pub(super) fn routes_to_read(&mut self, from: Route, keys: &[PortKey], wanted: u64) -> Vec<(Route, u32)> {
        let Some(peer) = self.peer_of(from) else { return Vec::new() };
        let mut readable = Vec::new();
        let routes = self.multi_rail.peers[peer].routes.clone();
        for route in routes {
            let port = self.port(route.rail());
            let remote = port.partner(route.to()).map(u32::from);
            let Some(key) = keys.iter().find(|key| Some(key.port) == remote).map(|key| key.key) else { continue };
            let is_usable = !port.is_down() && port.failure(route.to()).is_none();
            // The port that announced the message is connected, or is about to be.
            if is_usable && (route.rail() == from.rail() || port.is_ready(route.to())) {
                readable.push((route, key));
            }
        }
        if wanted < SHORTEST as u64 {
            readable.sort_by_key(|(route, _)| route.rail() != from.rail());
            readable.truncate(1);
        }
        readable
    }
}
