// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records for several ports: peers, endpoints, and the counts of messages between this process and each of them.
//!
//! Used by `rails` and `moving`. Grade: hot for [`Several::end`] and [`Several::end_mut`], else setup. Threads: the one
//! that has entered the PML; for [`Sent`], the port. Tests: below.

use std::collections::HashMap;

use engine::messenger::failover::Merging;
use engine::messenger::link::Link;
use engine::peer::PeerName;
use engine::transport::{EndpointId, Immediate};

use crate::runtime::watch::Completed;

pub(crate) struct Peer {
    /// Link of each port that reaches the peer; the first is its preferred home.
    pub(crate) links: Box<[Link]>,
    pub(crate) home: Link,
    /// Number of moves to another port so far.
    pub(crate) segment: u32,
    /// Reorder buffer for messages from the peer; `None` until its messages first move to another port.
    pub(crate) merging: Option<Merging<Held>>,
}

#[derive(Clone, Copy)]
pub(crate) struct End {
    /// Index of the peer; [`NOBODY`] until it is looked up.
    peer: u32,
    /// Number of messages that came by this endpoint before its peer first moved.
    pub(crate) received: u32,
    /// Whether the peer has moved, so that messages pass the reorder buffer.
    pub(crate) is_merged: bool,
}

const NOBODY: u32 = u32::MAX;

impl End {
    const NEW: End = End { peer: NOBODY, received: 0, is_merged: false };

    pub(crate) fn peer(self) -> Option<usize> {
        (self.peer != NOBODY).then_some(self.peer as usize)
    }

    pub(crate) fn set_peer(&mut self, peer: usize) {
        self.peer = peer as u32;
    }
}

#[derive(Default)]
pub(crate) struct Several {
    pub(crate) peers: Vec<Peer>,
    pub(crate) by_name: HashMap<PeerName, usize>,
    /// Indices in `peers` of peers that have gone.
    free: Vec<usize>,
    ends: Vec<Vec<End>>,
}

impl Several {
    pub(crate) fn new(rails: usize) -> Self {
        Several { ends: vec![Vec::new(); rails], ..Several::default() }
    }

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

    /// Removes a peer; its index may be reused.
    pub(crate) fn remove(&mut self, name: PeerName) {
        let Some(at) = self.by_name.remove(&name) else { return };
        for link in std::mem::take(&mut self.peers[at].links) {
            *self.end_mut(link) = End::NEW;
        }
        self.peers[at].merging = None;
        self.free.push(at);
    }

    #[inline]
    pub(crate) fn end(&self, rail: usize, to: EndpointId) -> Option<&End> {
        self.ends[rail].get(to.index() as usize)
    }

    /// Returns an endpoint; adds it if it is not known.
    #[inline]
    pub(crate) fn end_mut(&mut self, link: Link) -> &mut End {
        let (ends, at) = (&mut self.ends[link.rail()], link.to().index() as usize);
        if at >= ends.len() {
            ends.resize(at + 1, End::NEW);
        }
        &mut ends[at]
    }
}

/// Messages that this process has sent to a peer by one port.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sent {
    /// Number of messages since the port became the peer's home.
    pub(crate) count: u32,
    pub(crate) is_home: bool,
    /// Whether the connection has failed and was given up.
    pub(crate) is_given_up: bool,
}

/// How a message arrived.
#[derive(Clone, Copy)]
pub(crate) struct ByRail {
    pub(crate) rail: usize,
    /// Names the sender; not verified.
    pub(crate) immediate: Immediate,
    pub(crate) qp_num: u32,
}

/// Copy of a message that arrived too early, in the reorder buffer.
pub(crate) struct Held {
    pub(crate) bytes: Box<[u8]>,
    pub(crate) by: ByRail,
    /// Completion that reported the message, while a tool listens.
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
            several.remove(name(rank));
        }
        assert_eq!((several.peers.len(), several.by_name.len(), several.free.len()), (1, 0, 1));
    }
}
