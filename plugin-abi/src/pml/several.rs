// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a process has several ports: what is known of each peer, of each endpoint, and of what went to it and came
//! from it.
//!
//! Kept in `instance`. Used by `rails` (which port), `moving` (another one, and what arrives is put in order).
//! Grade: hot for [`Several::end`] and [`Several::end_mut`], else setup. Threads: who has entered the PML, but for
//! [`Sent`]. Plain data.

use std::collections::HashMap;

use engine::peer::PeerName;
use engine::protocol::stream::Merging;
use engine::transport::{EndpointId, Immediate};

use super::link::Link;
use crate::runtime::listeners::Completed;

/// A peer, as several ports reach it.
pub(crate) struct Peer {
    /// How each port reaches it that does, beginning with the one that is to be its home.
    pub(crate) links: Box<[Link]>,
    /// By which its messages go.
    pub(crate) home: Link,
    /// How often they have moved.
    pub(crate) segment: u32,
    /// The order of what it sends, from its first move on.
    pub(crate) merging: Option<Merging<Held>>,
}

/// What is known of an endpoint of a port.
#[derive(Clone, Copy)]
pub(crate) struct End {
    /// Of which peer it is; [`NOBODY`] while that was not looked for.
    peer: u32,
    /// How many messages have come by it before its peer first moved.
    pub(crate) received: u32,
    /// Its peer has moved: what comes is put in order.
    pub(crate) is_merged: bool,
}

const NOBODY: u32 = u32::MAX;

impl End {
    const NEW: End = End { peer: NOBODY, received: 0, is_merged: false };

    /// Its peer.
    pub(crate) fn peer(self) -> Option<usize> {
        (self.peer != NOBODY).then_some(self.peer as usize)
    }

    /// It is of this peer.
    pub(crate) fn set_peer(&mut self, peer: usize) {
        self.peer = peer as u32;
    }
}

/// The peers, and the endpoints of each rail.
#[derive(Default)]
pub(crate) struct Several {
    pub(crate) peers: Vec<Peer>,
    pub(crate) by_name: HashMap<PeerName, usize>,
    /// Places among the peers of those that have gone.
    free: Vec<usize>,
    ends: Vec<Vec<End>>,
}

impl Several {
    /// For so many rails.
    pub(crate) fn new(rails: usize) -> Self {
        Several { ends: vec![Vec::new(); rails], ..Several::default() }
    }

    /// A peer is met. Returns its place.
    pub(crate) fn add(&mut self, name: PeerName, peer: Peer) -> usize {
        let at = self.free.pop().unwrap_or(self.peers.len());
        for link in &peer.links {
            self.end_mut(*link).set_peer(at);
        }
        if at < self.peers.len() {
            self.peers[at] = peer;
        } else {
            self.peers.push(peer);
        }
        self.by_name.insert(name, at);
        at
    }

    /// A peer goes; another one may have its place.
    pub(crate) fn remove(&mut self, name: PeerName) {
        let Some(at) = self.by_name.remove(&name) else { return };
        for link in std::mem::take(&mut self.peers[at].links) {
            *self.end_mut(link) = End::NEW;
        }
        self.peers[at].merging = None;
        self.free.push(at);
    }

    /// An endpoint as far as it is known.
    #[inline]
    pub(crate) fn end(&self, rail: usize, to: EndpointId) -> Option<&End> {
        self.ends[rail].get(to.index() as usize)
    }

    /// An endpoint; made where it was not known.
    #[inline]
    pub(crate) fn end_mut(&mut self, link: Link) -> &mut End {
        let (ends, at) = (&mut self.ends[link.rail()], link.to().index() as usize);
        if at >= ends.len() {
            ends.resize(at + 1, End::NEW);
        }
        &mut ends[at]
    }
}

/// What a process has sent to a peer by one port. Used by who has entered that port.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sent {
    /// Messages since the port became its home.
    pub(crate) count: u32,
    /// Messages to it go by this port.
    pub(crate) is_home: bool,
    /// The connection has failed, and the process does without.
    pub(crate) is_given_up: bool,
}

/// By what a message came.
#[derive(Clone, Copy)]
pub(crate) struct ByRail {
    pub(crate) rail: usize,
    /// Who says to have sent it.
    pub(crate) immediate: Immediate,
    pub(crate) qp_num: u32,
}

/// A copy of a message that came before its turn.
pub(crate) struct Held {
    pub(crate) bytes: Box<[u8]>,
    pub(crate) by: ByRail,
    /// The completion that has brought it, while a tool listens.
    pub(crate) completed: Option<Completed>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_peers_that_come_and_go_take_the_place_of_one() {
        let mut several = Several::new(2);
        let name = |rank| PeerName { job: 7, rank };
        for rank in 0..1000 {
            let links = [0, 1].map(|rail| Link::new(rail, EndpointId::from_index(rank)));
            let peer = several.add(name(rank), Peer { links: links.into(), home: links[0], segment: 0, merging: None });
            assert_eq!(several.end(1, links[1].to()).and_then(|end| end.peer()), Some(peer));
            several.remove(name(rank));
            assert_eq!(several.end(1, links[1].to()).and_then(|end| end.peer()), None);
            // It has gone already.
            several.remove(name(rank));
        }
        assert_eq!((several.peers.len(), several.by_name.len(), several.free.len()), (1, 0, 1));
    }
}
