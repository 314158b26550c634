// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a process has several ports: by which of them each peer is reached, and by which its messages go.
//!
//! All messages to a peer go by one port, its *home*, in order and without numbers; which it is differs by peer, so
//! that ports share the load. Long ones are read by several (`striped`); a home whose port goes down moves (`moving`),
//! and what arrives is put in order again. What is known of them is in `several`. With one port nothing of
//! this file is used but [`links_to`], and what tests that: [`route`], [`account`]. Grade: hot for [`note`] and
//! [`route`], else setup. Threads: who has entered the PML, but for [`note`], which is for who has entered a port, and
//! [`links_to`], which enters ports alone.
//!
//! [`Quiet`] says whether rails are polled in a round, beside shared memory: seldom while nothing comes by them. A poll
//! of a rail costs as much as one of shared memory, and who waits for a process of the same host would pay for both.

use engine::peer::PeerName;
use engine::select::address;
use engine::transport::Port;
use ibex_ffi::openmpi::process::Process;

use super::instance::{Pml, Rail, State};
use super::link::{Account, Link};
use super::several::Peer;
use crate::runtime::modex;

/// By which port a message to this peer goes.
#[inline]
pub(crate) fn route(pml: &Pml, state: &mut State, link: Link) -> Link {
    if !pml.has_several() || link.as_local().is_some() {
        return link;
    }
    of(pml, state, link).map_or(link, |peer| state.several.peers[peer].home)
}

/// What flow control knows the peer by to which a link leads.
pub(crate) fn account(pml: &Pml, state: &mut State, link: Link) -> Account {
    if !pml.has_several() || link.as_local().is_some() {
        return Account(link);
    }
    Account(of(pml, state, link).map_or(link, |peer| state.several.peers[peer].links[0]))
}

/// The links that may stand in communicators for a peer.
pub(crate) fn in_communicators(pml: &Pml, state: &mut State, Account(link): Account) -> Vec<Link> {
    let peer = if pml.has_several() && link.as_local().is_none() { of(pml, state, link) } else { None };
    peer.map_or_else(
        || vec![link],
        |peer| state.several.peers[peer].links.iter().map(|link| link.of_several()).collect(),
    )
}

/// What stands in communicators for this link to a peer.
#[inline]
pub(crate) fn in_communicator(pml: &Pml, link: Link) -> Link {
    if pml.has_several() && link.as_local().is_none() { link.of_several() } else { link }
}

/// The peer to which a link of a rail leads; `None` where that cannot be told any more, and of other links.
pub(crate) fn of(pml: &Pml, state: &mut State, link: Link) -> Option<usize> {
    // What shared memory brings may name anything, if its sender is not sound.
    pml.rails().get(link.rail())?;
    match state.several.end_mut(link).peer() {
        Some(peer) => Some(peer),
        None => look_up(pml, state, link),
    }
}

#[cold]
fn look_up(pml: &Pml, state: &mut State, link: Link) -> Option<usize> {
    let port = pml.rails().get(link.rail())?.enter()?;
    let name = port.peer_name(link.to()).filter(|_| !port.has_gone(link.to()))?;
    drop(port);
    if let Some(peer) = state.several.by_name.get(&name).copied() {
        state.several.end_mut(link).set_peer(peer);
        return Some(peer);
    }
    // What a peer has published of itself may have to be fetched. Where Open MPI makes progress meanwhile that of the PML
    // finds it entered, and what the shared-memory BTL brings has the state.
    let mut links = pml.within(state, || links_to(pml, name)).ok()?;
    if !links.contains(&link) {
        links.push(link);
    }
    Some(add(pml, state, name, links))
}

/// The ways to a process, at least one, in the order of rails; else why there is none.
pub(crate) fn links_to(pml: &Pml, peer: PeerName) -> Result<Vec<Link>, String> {
    let ports = match modex::ports_of(peer) {
        Some(Ok(ports)) => ports,
        Some(Err(error)) => return Err(error.to_string()),
        None => return Err("it published no ibex port: it runs without ibex, or found none".to_owned()),
    };
    let addresses: Vec<_> = ports.iter().map(|entry| entry.address).collect();
    let pairs = address::pair(&modex::published(), &addresses);
    let links = pml.rails().iter().enumerate().filter_map(|(index, rail)| {
        let remote = pairs.get(usize::from(rail.port().index())).copied().flatten()?;
        Some(Link::new(index, rail.enter()?.peer(peer, remote as u8)))
    });
    let links: Vec<Link> = links.collect();
    if links.is_empty() {
        return Err("none of its ports is on the network of one of this process'".to_owned());
    }
    Ok(links)
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
    let home = links.iter().copied().find(|link| is_usable(pml, *link)).unwrap_or(links[0]);
    let peer = state.several.add(name, Peer { links: links.into(), home, segment: 0, merging: None });
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

/// There is no communicator with a process any more: it is looked for anew where there is one again. Returns the links
/// that led to it.
pub(crate) fn part(state: &mut State, name: PeerName) -> Vec<Link> {
    let known = state.peers.remove(&name);
    let links = match state.several.by_name.get(&name) {
        Some(peer) => state.several.peers[*peer].links.to_vec(),
        None => known.into_iter().collect(),
    };
    if let Some(account) = links.first() {
        let in_communicators: Vec<Link> = links.iter().flat_map(|link| [*link, link.of_several()]).collect();
        state.flow.forget(Account(*account), &in_communicators);
    }
    links
}

/// A process goes: nothing is kept of it. Returns the links that led to it.
pub(crate) fn remove(state: &mut State, name: PeerName) -> Vec<Link> {
    let links = part(state, name);
    state.several.remove(name);
    links
}

/// A message was given to the port of a rail; `is_posted`: its adapter has it.
pub(crate) fn note(rail: &Rail, port: &mut Port, link: Link, is_posted: bool) {
    let sent = rail.sent(port, link.to());
    sent.count = sent.count.wrapping_add(1);
    if is_posted {
        port.note_message(link.to());
    }
}

/// Rounds in which the rails have reported nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quiet {
    rounds: u32,
}

/// Rounds without anything after which they are polled less often.
const PATIENCE: u32 = 1000;

/// How often they are polled then.
const ONE_IN: u32 = 16;

impl Quiet {
    /// Begins a round: whether rails are polled in it.
    #[inline]
    pub(crate) fn are_due(&mut self) -> bool {
        self.rounds = if self.rounds < PATIENCE + ONE_IN { self.rounds + 1 } else { PATIENCE + 1 };
        self.rounds <= PATIENCE || self.rounds == PATIENCE + ONE_IN
    }

    /// They were polled, and have reported so much.
    #[inline]
    pub(crate) fn have_reported(&mut self, count: usize) {
        if count > 0 {
            self.rounds = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rails_are_polled_in_each_round_while_they_are_busy_and_then_in_one_of_sixteen() {
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
