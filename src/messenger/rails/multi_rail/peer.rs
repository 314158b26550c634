// SPDX-License-Identifier: MIT OR Apache-2.0
//! A peer that several rails may reach, and the choice of the route that its messages use: its *home*.
//!
//! Peers have different homes, so that the rails share the load. The host says which routes are usable now. Called by
//! `routes` when a peer is added, and when the link of a port or a connection changes. Grade: setup. Threads: the
//! owner's. Plain data. Tests: below.

use super::reorder_buffer::ReorderBuffer;
use crate::messenger::route::{Account, Route};

/// A peer that several rails may reach. `M`: a message that arrived too early.
#[derive(Debug)]
pub struct Peer<M> {
    /// Route of each port that reaches the peer; the first is its preferred home.
    pub routes: Box<[Route]>,
    /// The route that its messages use now.
    pub home: Route,
    /// Number of moves to another port so far.
    segment: u32,
    /// Reorder buffer for messages from the peer; `None` until its messages first move to another port.
    pub(super) reorder_buffer: Option<ReorderBuffer<M>>,
}

impl<M> Peer<M> {
    /// Makes a peer with these routes, at least one. The `ranks` of this process and of the peer choose its home. Both
    /// processes choose the same port, if their ports have the same order, which saves a connection.
    pub fn new(mut routes: Vec<Route>, ranks: [u32; 2], is_usable: impl Fn(Route) -> bool) -> Self {
        let first = ranks[0].wrapping_add(ranks[1]) as usize % routes.len();
        routes.rotate_left(first);
        let home = routes.iter().copied().find(|route| is_usable(*route)).unwrap_or(routes[0]);
        Peer { routes: routes.into(), home, segment: 0, reorder_buffer: None }
    }

    /// Returns flow control's account of the peer, which never changes.
    pub fn account(&self) -> Account {
        Account(self.routes[0])
    }

    /// Returns the first usable route by another rail than this one.
    pub fn other_than(&self, rail: usize, is_usable: impl Fn(Route) -> bool) -> Option<Route> {
        self.routes.iter().copied().find(|route| route.rail() != rail && is_usable(*route))
    }

    /// Returns the route to which the peer moves when the port of this rail loses its link, or has it back. `None`: it
    /// need not move. It returns to its first route, and to another one if its home is not usable.
    pub fn moves(&self, rail: usize, is_up: bool, is_usable: impl Fn(Route) -> bool) -> Option<Route> {
        if !is_up {
            return if self.home.rail() == rail { self.other_than(rail, is_usable) } else { None };
        }
        let route = *self.routes.iter().find(|route| route.rail() == rail)?;
        let is_better = route == self.routes[0] || !is_usable(self.home);
        (route != self.home && is_better && is_usable(route)).then_some(route)
    }

    /// Moves the peer's messages to a route: a new segment begins. Returns the former home, and the segment's number.
    pub fn move_to(&mut self, to: Route) -> (Route, u32) {
        self.segment = self.segment.wrapping_add(1);
        (std::mem::replace(&mut self.home, to), self.segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::EndpointId;

    /// Returns a peer that three rails reach, the first of which is this one, and its usable rails.
    fn peer(first: u32, usable: &[usize]) -> (Peer<()>, impl Fn(Route) -> bool) {
        let routes = [0, 1, 2].map(|rail| Route::new(rail, EndpointId::from_index(7))).to_vec();
        let is_usable = move |route: Route| usable.contains(&route.rail());
        (Peer::new(routes, [first, 0], is_usable), is_usable)
    }

    #[test]
    fn both_processes_of_a_pair_begin_with_the_same_rail_and_pairs_share_the_rails() {
        let routes = || [0, 1, 2].map(|rail| Route::new(rail, EndpointId::from_index(0))).to_vec();
        let home = |me, peer| Peer::<()>::new(routes(), [me, peer], |_| true).home.rail();
        for (me, peer) in [(0, 1), (4, 9), (u32::MAX, 5)] {
            assert_eq!(home(me, peer), home(peer, me));
        }
        assert_eq!([1, 2, 3].map(|peer| home(0, peer)), [1, 2, 0]);
    }

    #[test]
    fn the_home_of_a_new_peer_is_its_first_usable_route_or_its_first() {
        for (usable, home) in [(&[0, 1, 2][..], 1), (&[0, 2], 2), (&[0], 0), (&[], 1)] {
            let (peer, _) = peer(1, usable);
            assert_eq!((peer.home.rail(), peer.account().0.rail()), (home, 1), "{usable:?}");
        }
    }

    #[test]
    fn a_peer_leaves_its_home_when_that_goes_down_and_returns_to_its_first_route_alone() {
        // The rail whose link changes, whether it is up, the usable rails, and where a peer with home 0 then goes.
        for (rail, is_up, usable, to) in [
            (0, false, &[1, 2][..], Some(1)),
            (0, false, &[2], Some(2)),
            (0, false, &[], None),
            (1, false, &[0, 2], None),
            (1, true, &[0, 1, 2], None),
            (1, true, &[1, 2], Some(1)),
            (0, true, &[0, 1, 2], None),
        ] {
            let (mut peer, is_usable) = peer(0, usable);
            peer.home = peer.routes[0];
            let moves = peer.moves(rail, is_up, is_usable).map(Route::rail);
            assert_eq!(moves, to, "rail {rail}, up: {is_up}, usable: {usable:?}");
        }
        let (mut peer, is_usable) = peer(0, &[0, 1, 2]);
        let [first, second] = [0, 1].map(|at| peer.routes[at]);
        assert_eq!(peer.move_to(second), (first, 1));
        assert_eq!((peer.moves(2, true, &is_usable), peer.moves(0, true, &is_usable)), (None, Some(first)));
        assert_eq!(peer.move_to(first), (second, 2));
    }
}
