// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a process has several ports: by which of them each peer is reached, and by which its messages go.
//!
//! All messages to a peer go by one port, its *home*, in order and without numbers; which it is differs by peer, so that ports
//! share the load. Long ones are read by several (`striped`); a home whose port goes down moves (`moving`), and what arrives is put in order
//! again (`merging`). With one port nothing of this file is used but [`route`], which tests that. Grade: hot for [`at_once`] and [`route`],
//! else setup. Threads: who has entered the PML, but for [`at_once`], which enters a port alone.

use std::collections::HashMap;

use engine::peer::PeerName;
use engine::protocol::stream::Merging;
use engine::transport::{EndpointId, Port};
use ibex_ffi::openmpi::process::Process;

use super::datatype::Extent;
use super::instance::{Pml, Rail, State, pml};
use super::link::Link;
use super::merging::Held;
use super::{peer, transmit};
use crate::runtime::modex;

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
}

/// The peers, and the endpoints of each rail.
#[derive(Default)]
pub(crate) struct Several {
    pub(crate) peers: Vec<Peer>,
    by_name: HashMap<PeerName, usize>,
    ends: Vec<Vec<End>>,
}

impl Several {
    /// For so many rails.
    pub(crate) fn new(rails: usize) -> Self {
        Several { ends: vec![Vec::new(); rails], ..Several::default() }
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

/// By which port a message to this peer goes.
#[inline]
pub(crate) fn route(pml: &Pml, state: &mut State, link: Link) -> Link {
    if !pml.has_several() || link.as_local().is_some() {
        return link;
    }
    of(pml, state, link).map_or(link, |peer| state.several.peers[peer].home)
}

/// The peer to which a link leads; `None` where that cannot be told any more.
pub(crate) fn of(pml: &Pml, state: &mut State, link: Link) -> Option<usize> {
    match state.several.end_mut(link).peer() {
        Some(peer) => Some(peer),
        None => look_up(pml, state, link),
    }
}

#[cold]
fn look_up(pml: &Pml, state: &mut State, link: Link) -> Option<usize> {
    let name = pml.rails().get(link.rail())?.enter()?.peer_name(link.to())?;
    if let Some(peer) = state.several.by_name.get(&name).copied() {
        state.several.end_mut(link).peer = peer as u32;
        return Some(peer);
    }
    // What a peer has published of itself may have to be fetched; nothing calls back into the PML meanwhile but its progress, which
    // finds it entered.
    let mut links = peer::links_to(pml, name).ok()?;
    if !links.contains(&link) {
        links.push(link);
    }
    Some(add(pml, state, name, links))
}

/// A peer is met that these links lead to, at least one.
pub(crate) fn add(pml: &Pml, state: &mut State, name: PeerName, mut links: Vec<Link>) -> usize {
    if let Some(known) = state.several.by_name.get(&name) {
        return *known;
    }
    // Both sides of a pair begin with the same port where theirs are in the same order: one connection less.
    let me = Process::me().map_or(0, |me| modex::from_openmpi(me.name()).rank);
    let first = me.wrapping_add(name.rank) as usize % links.len();
    links.rotate_left(first);
    let peer = state.several.peers.len();
    for link in &links {
        state.several.end_mut(*link).peer = peer as u32;
    }
    let home = links.iter().copied().find(|link| is_usable(pml, *link)).unwrap_or(links[0]);
    state.several.peers.push(Peer { links: links.into(), home, segment: 0, merging: None });
    state.several.by_name.insert(name, peer);
    settle(pml, home);
    peer
}

/// Messages go by this link from now on.
fn settle(pml: &Pml, home: Link) {
    if let Some(rail) = pml.rails().get(home.rail())
        && let Some(mut port) = rail.enter()
    {
        rail.sent(&mut port, home.to()).is_home = true;
    }
}

/// Whether messages to the peer can go by this link now: there is a connection or may be, and the port is up.
pub(crate) fn is_usable(pml: &Pml, link: Link) -> bool {
    let port = pml.rails().get(link.rail()).and_then(Rail::enter);
    port.is_some_and(|port| !port.is_down() && has_not_failed(&port, link))
}

pub(crate) fn has_not_failed(port: &Port, link: Link) -> bool {
    port.failure(link.to()).is_none() && !port.is_forgotten(link.to())
}

/// A process goes. Returns the links that led to it.
pub(crate) fn remove(state: &mut State, name: PeerName) -> Box<[Link]> {
    state.several.by_name.remove(&name).map_or_else(Box::default, |peer| state.several.peers[peer].links.clone())
}

/// Sends header and data of one piece inside the work request, or not at all, by a port that is one of several.
///
/// # Safety
/// The data may be read for the call.
#[inline(never)]
pub(crate) unsafe fn at_once(link: Link, header: &[u8], extent: Extent) -> bool {
    if !link.is_of_several() {
        return false;
    }
    let Some(rail) = pml().and_then(|pml| pml.rails().get(link.rail())) else { return false };
    let Some(mut port) = rail.enter() else { return false };
    if !rail.sent(&mut port, link.to()).is_home {
        return false;
    }
    // SAFETY: this function's rule.
    if !unsafe { transmit::inline(&mut port, link, header, extent) } {
        return false;
    }
    note(rail, &mut port, link, true);
    true
}

/// A message was given to the port of a rail; `is_posted`: its adapter has it.
pub(crate) fn note(rail: &Rail, port: &mut Port, link: Link, is_posted: bool) {
    let sent = rail.sent(port, link.to());
    sent.count = sent.count.wrapping_add(1);
    if is_posted {
        port.note_message(link.to());
    }
}
