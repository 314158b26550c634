// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of the rails. [`MultiRail`] has the peers and endpoints of several rails, and counts the messages to and
//! from each peer. [`Quiet`] says how often to poll the rails beside shared memory, as a poll of either costs the same.
//!
//! Used by `pml/ports/rails.rs`, `pml/ports/failover.rs` and `pml/progress.rs`. Grade: hot for [`MultiRail::end`],
//! [`MultiRail::end_mut`] and [`Quiet`], else setup. Threads: the owner's; for [`Sent`], the port's. Tests: below.

use std::collections::HashMap;

use failover::ReorderBuffer;

use super::route::Route;
use crate::peer::PeerName;
use crate::transport::EndpointId;

pub mod failover;

/// A peer that several rails may reach. `M`: a message that arrived too early.
#[derive(Debug)]
pub struct Peer<M> {
    /// Route of each port that reaches the peer; the first is its preferred home.
    pub routes: Box<[Route]>,
    /// The route that its messages use now.
    pub home: Route,
    /// Number of moves to another port so far.
    pub segment: u32,
    /// Reorder buffer for messages from the peer; `None` until its messages first move to another port.
    pub reorder_buffer: Option<ReorderBuffer<M>>,
}

/// An endpoint of a rail.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Index of the peer; [`NOBODY`] until it is looked up.
    peer: u32,
    /// Number of messages that came by this endpoint before its peer first moved.
    pub received: u32,
    /// Whether the peer has moved, so that messages pass the reorder buffer.
    pub is_reordered: bool,
}

const NOBODY: u32 = u32::MAX;

impl End {
    const NEW: End = End { peer: NOBODY, received: 0, is_reordered: false };

    /// Returns the index of its peer.
    #[inline]
    pub fn peer(self) -> Option<usize> {
        (self.peer != NOBODY).then_some(self.peer as usize)
    }

    /// Notes its peer, which was looked up.
    #[inline]
    pub fn set_peer(&mut self, peer: usize) {
        self.peer = peer as u32;
    }
}

/// The peers and endpoints of several rails.
#[derive(Debug)]
pub struct MultiRail<M> {
    /// The peers, by their indices.
    pub peers: Vec<Peer<M>>,
    /// The index of each peer.
    pub by_name: HashMap<PeerName, usize>,
    /// Indices in `peers` of peers that have gone.
    free: Vec<usize>,
    ends: Vec<Vec<End>>,
}

impl<M> MultiRail<M> {
    /// Makes the records of `rails` rails.
    pub fn new(rails: usize) -> Self {
        MultiRail { peers: Vec::new(), by_name: HashMap::new(), free: Vec::new(), ends: vec![Vec::new(); rails] }
    }

    /// Adds a peer. Returns its index.
    pub fn add(&mut self, name: PeerName, peer: Peer<M>) -> usize {
        let at = self.free.pop().unwrap_or(self.peers.len());
        for route in &peer.routes {
            self.end_mut(*route).set_peer(at);
        }
        if at < self.peers.len() {
            self.peers[at] = peer;
        } else {
            self.peers.push(peer);
        }
        self.by_name.insert(name, at);
        at
    }

    /// Removes a peer; its index may be reused.
    pub fn remove(&mut self, name: PeerName) {
        let Some(at) = self.by_name.remove(&name) else { return };
        for route in std::mem::take(&mut self.peers[at].routes) {
            *self.end_mut(route) = End::NEW;
        }
        self.peers[at].reorder_buffer = None;
        self.free.push(at);
    }

    /// Returns an endpoint; `None` if it is not known.
    #[inline]
    pub fn end(&self, rail: usize, to: EndpointId) -> Option<&End> {
        self.ends[rail].get(to.index() as usize)
    }

    /// Returns an endpoint; adds it if it is not known.
    #[inline]
    pub fn end_mut(&mut self, route: Route) -> &mut End {
        let (ends, at) = (&mut self.ends[route.rail()], route.to().index() as usize);
        if at >= ends.len() {
            ends.resize(at + 1, End::NEW);
        }
        &mut ends[at]
    }
}

/// Messages that this process has sent to a peer by one port.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    /// Number of messages since the port became the peer's home.
    pub count: u32,
    /// Whether the port is the peer's home.
    pub is_home: bool,
    /// Whether the connection has failed and was given up.
    pub is_given_up: bool,
}

/// Number of rounds in which the rails have reported nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet {
    rounds: u32,
}

/// Number of rounds without a report after which rails are polled less often.
const PATIENCE: u32 = 1000;

/// Number of rounds between two polls of the rails from then on.
const ONE_IN: u32 = 16;

impl Quiet {
    /// Begins a round. Returns whether rails are polled in it.
    #[inline]
    pub fn are_due(&mut self) -> bool {
        self.rounds = if self.rounds < PATIENCE + ONE_IN { self.rounds + 1 } else { PATIENCE + 1 };
        self.rounds <= PATIENCE || self.rounds == PATIENCE + ONE_IN
    }

    /// Notes the number of events of a poll of the rails.
    #[inline]
    pub fn have_reported(&mut self, count: usize) {
        if count > 0 {
            self.rounds = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_peers_that_come_and_go_take_the_place_of_one() {
        let mut rails = MultiRail::<()>::new(2);
        let name = |rank| PeerName { job: 7, rank };
        for rank in 0..1000 {
            let routes = [0, 1].map(|rail| Route::new(rail, EndpointId::from_index(rank)));
            let peer = rails
                .add(name(rank), Peer { routes: routes.into(), home: routes[0], segment: 0, reorder_buffer: None });
            assert_eq!(rails.end(1, routes[1].to()).and_then(|end| end.peer()), Some(peer));
            rails.remove(name(rank));
            assert_eq!(rails.end(1, routes[1].to()).and_then(|end| end.peer()), None);
            rails.remove(name(rank));
        }
        assert_eq!((rails.peers.len(), rails.by_name.len(), rails.free.len()), (1, 0, 1));
    }

    #[test]
    fn quiet_polls_busy_rails_in_each_round_and_silent_ones_in_one_of_sixteen() {
        let mut rails = Quiet::default();
        assert!((0..PATIENCE).all(|_| rails.are_due()));
        let due = (0..16 * 10).filter(|_| rails.are_due()).count();
        assert_eq!(due, 10);
        rails.have_reported(0);
        assert!(!rails.are_due());
        rails.have_reported(1);
        assert!((0..PATIENCE).all(|_| rails.are_due()));
    }
}
