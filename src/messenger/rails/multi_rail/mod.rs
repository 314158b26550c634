// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of several rails: the peers (`peer.rs`), the endpoints by which they are reached, and the order of the
//! messages of peers that have moved from one rail to another (`reorder_buffer.rs`).
//!
//! Used by `routes`, `failover` and `completions`, and by the hosts while their ports poll. Grade: hot for
//! [`MultiRail::may_be_taken`], [`MultiRail::count`] and [`MultiRail::peer_of`], else setup. Threads: the one that has
//! entered the messenger. Tests: below.

pub(in crate::messenger) mod peer;
mod reorder_buffer;

use std::collections::HashMap;

use peer::Peer;
use reorder_buffer::ReorderBuffer;

use crate::messenger::route::Route;
use crate::peer::PeerName;
use crate::transport::EndpointId;

/// An endpoint of a rail.
#[derive(Clone, Copy, Debug)]
struct End {
    /// Index of the peer; [`NOBODY`] until it is looked up.
    peer: u32,
    /// Number of messages that came by this endpoint before its peer first moved.
    received: u32,
    /// Whether the peer has moved, so that messages pass the reorder buffer.
    is_reordered: bool,
}

const NOBODY: u32 = u32::MAX;

impl End {
    const NEW: End = End { peer: NOBODY, received: 0, is_reordered: false };
}

/// When to handle a message that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Now.
    Now,
    /// Now, and then those messages of this peer that [`MultiRail::release`] returns.
    NowAndHeld(usize),
    /// Later: it waits in the reorder buffer. Never if its peer has gone.
    Later,
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
            self.set_peer(*route, at);
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

    /// Returns the index of the peer of a route, once it was looked up.
    #[inline]
    pub fn peer_of(&mut self, route: Route) -> Option<usize> {
        let peer = self.end_mut(route).peer;
        (peer != NOBODY).then_some(peer as usize)
    }

    /// Returns the route that names the account of the peer of a route, once it was looked up.
    pub fn account_of(&mut self, route: Route) -> Option<Route> {
        self.peer_of(route).map(|peer| self.peers[peer].account().0)
    }

    /// Notes the peer of a route, which was looked up.
    pub fn set_peer(&mut self, route: Route, peer: usize) {
        self.end_mut(route).peer = peer as u32;
    }

    #[inline]
    fn end(&self, rail: usize, to: EndpointId) -> Option<&End> {
        self.ends[rail].get(to.index() as usize)
    }

    /// Returns an endpoint; adds it if it is not known.
    #[inline]
    fn end_mut(&mut self, route: Route) -> &mut End {
        let (ends, at) = (&mut self.ends[route.rail()], route.to().index() as usize);
        if at >= ends.len() {
            ends.resize(at + 1, End::NEW);
        }
        &mut ends[at]
    }

    /// Whether messages by an endpoint may be handled in place, and only counted ([`Self::count`]). False if its peer
    /// has moved, or the endpoint is unknown.
    #[inline]
    pub fn may_be_taken(&self, rail: usize, from: EndpointId) -> bool {
        self.end(rail, from).is_some_and(|end| !end.is_reordered)
    }

    /// Counts a message of a peer that has never moved.
    #[inline]
    pub fn count(&mut self, rail: usize, from: EndpointId) {
        let end = self.end_mut(Route::new(rail, from));
        end.received = end.received.wrapping_add(1);
    }

    /// Notes a message. `is_there`: whether the port has the endpoint, which a faulty peer may have made up. `copied`
    /// returns a copy for the reorder buffer.
    pub fn arrives(
        &mut self,
        rail: usize,
        from: EndpointId,
        is_there: impl FnOnce() -> bool,
        copied: impl FnOnce() -> M,
    ) -> Turn {
        let peer = match self.end(rail, from) {
            Some(End { is_reordered: true, peer, .. }) => *peer as usize,
            known => {
                if known.is_some() || is_there() {
                    self.count(rail, from);
                }
                return Turn::Now;
            }
        };
        // Without a buffer the peer has gone.
        let Some(buffer) = self.peers.get_mut(peer).and_then(|peer| peer.reorder_buffer.as_mut()) else {
            return Turn::Later;
        };
        if buffer.arrived(rail) {
            return Turn::NowAndHeld(peer);
        }
        buffer.hold(rail, copied());
        Turn::Later
    }

    /// Notes a `Moved` of a peer that came by this rail ([`ReorderBuffer::moved`]). The caller then handles what
    /// [`Self::release`] returns.
    pub fn moved(&mut self, peer: usize, rail: usize, (segment, count): (u32, u32)) {
        if self.peers[peer].reorder_buffer.is_none() {
            let mut received: u32 = 0;
            for route in self.peers[peer].routes.clone() {
                let end = self.end_mut(route);
                received = received.wrapping_add(end.received);
                end.is_reordered = true;
            }
            self.peers[peer].reorder_buffer = Some(ReorderBuffer::new(self.ends.len(), received));
        }
        if let Some(buffer) = &mut self.peers[peer].reorder_buffer {
            buffer.moved(rail, segment, count);
        }
    }

    /// Returns the next held message of a peer whose turn has come.
    pub fn release(&mut self, peer: usize) -> Option<M> {
        self.peers[peer].reorder_buffer.as_mut()?.release()
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
            let peer = rails.add(name(rank), Peer::new(routes.into(), [0, 0], |_| true));
            assert_eq!(rails.peer_of(routes[1]), Some(peer));
            rails.remove(name(rank));
            assert_eq!(rails.peer_of(routes[1]), None);
            rails.remove(name(rank));
        }
        assert_eq!((rails.peers.len(), rails.by_name.len(), rails.free.len()), (1, 0, 1));
    }

    #[test]
    fn messages_of_a_peer_that_has_moved_wait_for_those_that_it_sent_by_its_former_port() {
        let mut rails = MultiRail::new(2);
        let routes = [0, 1].map(|rail| Route::new(rail, EndpointId::from_index(4)));
        let peer = rails.add(PeerName { job: 7, rank: 1 }, Peer::new(routes.into(), [0, 0], |_| true));
        let arrives = |rails: &mut MultiRail<char>, rail| rails.arrives(rail, routes[rail].to(), || true, || 'd');
        assert!(rails.may_be_taken(0, routes[0].to()));
        rails.count(0, routes[0].to());
        assert_eq!(arrives(&mut rails, 0), Turn::Now);
        // Three messages by the first port; the third is late.
        rails.moved(peer, 1, (1, 3));
        assert_eq!((rails.release(peer), rails.may_be_taken(0, routes[0].to())), (None, false));
        assert_eq!(arrives(&mut rails, 1), Turn::Later);
        assert_eq!(arrives(&mut rails, 0), Turn::NowAndHeld(peer));
        assert_eq!((rails.release(peer), rails.release(peer)), (Some('d'), None));
        assert_eq!(arrives(&mut rails, 1), Turn::NowAndHeld(peer));
        rails.peers[peer].reorder_buffer = None;
        assert_eq!(arrives(&mut rails, 1), Turn::Later, "it has gone");
    }

    #[test]
    fn a_message_that_names_an_unknown_endpoint_creates_no_record_of_it() {
        let mut rails = MultiRail::<()>::new(2);
        let (known, made_up) = (EndpointId::from_index(3), EndpointId::from_index((1 << 24) - 2));
        assert_eq!(
            [(known, true), (made_up, false)].map(|(from, is)| rails.arrives(1, from, || is, || ())),
            [Turn::Now; 2]
        );
        assert_eq!([known, made_up].map(|from| rails.may_be_taken(1, from)), [true, false]);
        assert_eq!(rails.ends[1].len(), 4);
    }
}
