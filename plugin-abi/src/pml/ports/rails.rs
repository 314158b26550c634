// SPDX-License-Identifier: MIT OR Apache-2.0
//! The link to a peer, from its rank in a communicator ([`link`]). With several ports: which of them reach the peer,
//! which one its messages use, and which read a long message.
//!
//! Peers have different homes, so that the ports share the load. `engine::messenger::rails` has the records. With one
//! port, the PML uses only [`link`], [`links_to`], [`part`], and functions such as [`route`] that test for it. A sender
//! announces a long message with the keys of several ports; the receiver reads by those of its ports that
//! are connected to one of them ([`readable_by`]), and its other ports begin to connect, for the next message. Grade: hot for
//! [`note`] and [`route`], pending for long messages, else setup. Threads: the one that has entered the PML; for
//! [`note`], a port; [`link`]: any, with nothing entered. Tests: `pml/tests.rs`, and `rail_down.c` in `hw-tests/mpi`.

use std::ptr::NonNull;

use engine::messenger::header::PortKey;
use engine::messenger::host::Exposed;
use engine::messenger::link::{Account, Link};
use engine::messenger::path_taken::Reason;
use engine::messenger::rails::Peer;
use engine::peer::PeerName;
use engine::select::address;
use ibex_ffi::openmpi::process::Process;
use ibex_ffi::openmpi::sys;

use crate::pml::communicator::Communicator;
use crate::pml::datatype::Extent;
use crate::pml::handle::Handle;
use crate::pml::instance::{Pml, Rail, State};
use crate::pml::{component, libmpi};
use crate::runtime::device::Port;
use crate::runtime::memory::Registered;
use crate::runtime::variables::now;
use crate::runtime::{messages, modex};

/// Returns the link to a rank, and stores it; `None` if no port of this process reaches it.
#[inline]
pub(crate) unsafe fn link(pml: &Pml, comm: *mut sys::ompi_communicator_t, rank: i32) -> Option<Link> {
    // SAFETY: P4, P1: `comm` is alive and was added, as this function requires.
    let communicator = unsafe { Communicator::of(comm) };
    let link = communicator.link(rank);
    if link != Link::UNKNOWN {
        return Some(link.unmarked());
    }
    // SAFETY: P4, P1: `comm` is alive and was added, as this function requires.
    let link = unsafe { find(pml, comm, rank) }?;
    pml.enter()?.messenger.flow.holders.note(link, communicator.context, rank);
    communicator.set_found(rank, link);
    Some(link)
}

/// Returns the link to a rank if its process was looked up before, or shared memory reaches it.
pub(crate) unsafe fn known(state: &State, comm: *mut sys::ompi_communicator_t, rank: i32) -> Option<Link> {
    // SAFETY: P1: `comm` is alive and was added, as this function requires.
    let process = unsafe { process(comm, rank) }?;
    state.peers.get(&modex::from_openmpi(process.name())).copied()
}

/// Returns the process of a rank. `None`: the communicator has no such rank, which a faulty peer may name.
pub(crate) unsafe fn process(comm: *mut sys::ompi_communicator_t, rank: i32) -> Option<Process> {
    // SAFETY: P4, P1: `comm` is alive and was added, as this function requires; it has this rank.
    unsafe {
        if Communicator::of(comm).has(rank) { Process::from_raw(libmpi::ibex_comm_peer(comm, rank)) } else { None }
    }
}

#[cold]
#[inline(never)]
unsafe fn find(pml: &Pml, comm: *mut sys::ompi_communicator_t, rank: i32) -> Option<Link> {
    // SAFETY: P4, P1: `comm` is alive and was added, as this function requires.
    let process = unsafe { process(comm, rank) }?;
    let peer = modex::from_openmpi(process.name());
    if let Some(link) = pml.enter()?.peers.get(&peer) {
        return Some(*link);
    }
    if Process::me().is_some_and(|me| me.name() == process.name()) {
        pml.enter()?.peers.insert(peer, Link::LOOPBACK);
        return Some(Link::LOOPBACK);
    }
    if !component::is_same(process) {
        return None;
    }
    let link = links_to(pml, peer);
    match link {
        Ok(links) => {
            if now::verbosity() > 0 {
                let places = links.iter().filter_map(|link| Some(pml.rails().get(link.rail())?.port().place()));
                let places: Vec<String> = places.map(ToString::to_string).collect();
                messages::verbose(&format!("rank {} is reached by {}", peer.rank, places.join(", ")));
            }
            let mut state = pml.enter()?;
            let link = if pml.is_multi_rail() {
                let peer = add(pml, &mut state, peer, links);
                state.multi_rail.peers[peer].home.multi_rail()
            } else {
                links[0]
            };
            state.peers.insert(peer, link);
            Some(link)
        }
        Err(why) => {
            messages::no_way(peer, &process.host(), &why);
            None
        }
    }
}

/// Returns the link that messages to the peer of `link` use now.
#[inline]
pub(crate) fn route(pml: &Pml, state: &mut State, link: Link) -> Link {
    if !pml.is_multi_rail() || link.as_local().is_some() {
        return link;
    }
    of(pml, state, link).map_or(link, |peer| state.multi_rail.peers[peer].home)
}

/// Returns flow control's account of the peer of `link`: the first of its links, which never changes.
pub(crate) fn account(pml: &Pml, state: &mut State, link: Link) -> Account {
    if !pml.is_multi_rail() || link.as_local().is_some() {
        return Account(link);
    }
    Account(of(pml, state, link).map_or(link, |peer| state.multi_rail.peers[peer].links[0]))
}

/// Returns the links that communicators may have stored for a peer.
pub(crate) fn in_communicators(pml: &Pml, state: &mut State, Account(link): Account) -> Vec<Link> {
    let peer = if pml.is_multi_rail() && link.as_local().is_none() { of(pml, state, link) } else { None };
    peer.map_or_else(
        || vec![link],
        |peer| state.multi_rail.peers[peer].links.iter().map(|link| link.multi_rail()).collect(),
    )
}

/// Returns the form in which communicators store this link.
#[inline]
pub(crate) fn in_communicator(pml: &Pml, link: Link) -> Link {
    if pml.is_multi_rail() && link.as_local().is_none() { link.multi_rail() } else { link }
}

/// Returns the index of the peer of a rail's link; `None` if the peer is gone, or the link is not a rail's.
pub(crate) fn of(pml: &Pml, state: &mut State, link: Link) -> Option<usize> {
    // A faulty process of this host may name any sender.
    pml.rails().get(link.rail())?;
    match state.multi_rail.end_mut(link).peer() {
        Some(peer) => Some(peer),
        None => look_up(pml, state, link),
    }
}

#[cold]
fn look_up(pml: &Pml, state: &mut State, link: Link) -> Option<usize> {
    let port = pml.rails().get(link.rail())?.enter()?;
    let name = port.peer_name(link.to()).filter(|_| !port.has_gone(link.to()))?;
    drop(port);
    if let Some(peer) = state.multi_rail.by_name.get(&name).copied() {
        state.multi_rail.end_mut(link).set_peer(peer);
        return Some(peer);
    }
    let mut links = links_to(pml, name).ok()?;
    if !links.contains(&link) {
        links.push(link);
    }
    Some(add(pml, state, name, links))
}

/// Returns the links to a process, at least one, in the order of rails; or the reason for their absence.
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

/// Adds a peer that these links (at least one) lead to. Returns its index.
pub(crate) fn add(pml: &Pml, state: &mut State, name: PeerName, mut links: Vec<Link>) -> usize {
    if let Some(known) = state.multi_rail.by_name.get(&name) {
        return *known;
    }
    // Both processes of a pair begin with the same port, if theirs are in the same order: that saves a connection.
    let me = Process::me().map_or(0, |me| modex::from_openmpi(me.name()).rank);
    let first = me.wrapping_add(name.rank) as usize % links.len();
    links.rotate_left(first);
    let home = links.iter().copied().find(|link| is_usable(pml, *link)).unwrap_or(links[0]);
    let peer = state.multi_rail.add(name, Peer { links: links.into(), home, segment: 0, reorder_buffer: None });
    if let Some(rail) = pml.rails().get(home.rail())
        && let Some(mut port) = rail.enter()
    {
        rail.sent(&mut port, home.to()).is_home = true;
    }
    peer
}

/// Whether messages can use this link now: its port is up, and the connection is there or may still be made.
pub(crate) fn is_usable(pml: &Pml, link: Link) -> bool {
    let port = pml.rails().get(link.rail()).and_then(Rail::enter);
    port.is_some_and(|port| !port.is_down() && has_not_failed(&port, link))
}

pub(crate) fn has_not_failed(port: &Port, link: Link) -> bool {
    port.failure(link.to()).is_none() && !port.is_forgotten(link.to())
}

/// Forgets and returns the links to a process that shares no communicator with this one any more.
pub(crate) fn part(state: &mut State, name: PeerName) -> Vec<Link> {
    let known = state.peers.remove(&name);
    let links = match state.multi_rail.by_name.get(&name) {
        Some(peer) => state.multi_rail.peers[*peer].links.to_vec(),
        None => known.into_iter().collect(),
    };
    if let Some(account) = links.first() {
        let in_communicators: Vec<Link> = links.iter().flat_map(|link| [*link, link.multi_rail()]).collect();
        state.messenger.flow.forget(Account(*account), &in_communicators);
    }
    links
}

/// Removes all records of a process that has gone. Returns the links that led to it.
pub(crate) fn remove(state: &mut State, name: PeerName) -> Vec<Link> {
    let links = part(state, name);
    state.multi_rail.remove(name);
    links
}

/// Counts a message that was given to the port of a rail. `is_posted`: the adapter has it.
pub(crate) fn note(rail: &Rail, port: &mut Port, link: Link, is_posted: bool) {
    let sent = rail.sent(port, link.to());
    sent.count = sent.count.wrapping_add(1);
    if is_posted {
        port.note_message(link.to());
    }
}

/// Shortest message that several ports read, bytes: two reads of the least length.
pub(crate) const SHORTEST: usize = 64 << 10;

/// Returns the links by which this process can read a message now, with the sender's keys; for a message shorter than
/// [`SHORTEST`] only one, preferably the link of the announcement.
pub(crate) fn readable_by(pml: &Pml, state: &mut State, from: Link, keys: &[PortKey], wanted: u64) -> Vec<(Link, u32)> {
    let Some(peer) = of(pml, state, from) else { return Vec::new() };
    let links = state.multi_rail.peers[peer].links.iter().copied();
    let mut links: Vec<(Link, u32)> = links
        .filter_map(|link| {
            let mut port = pml.rails().get(link.rail())?.enter()?;
            let remote = u32::from(port.partner(link.to())?);
            let key = keys.iter().find(|key| key.port == remote)?.key;
            let is_usable = !port.is_down() && has_not_failed(&port, link);
            // The port that announced the message is connected, or is about to be.
            (is_usable && (link.rail() == from.rail() || port.is_ready(link.to()))).then_some((link, key))
        })
        .collect();
    if wanted < SHORTEST as u64 {
        links.sort_by_key(|(link, _)| link.rail() != from.rail());
        links.truncate(1);
    }
    links
}

/// Registers a message with the other ports that reach its receiver, if it is long enough to be read by several.
///
/// # Safety
/// P2, M3: the data of a send, whose registrations the engine ends before the send is finished.
unsafe fn register(pml: &Pml, state: &mut State, home: Link, extent: Extent) -> Vec<(usize, Registered)> {
    if !pml.is_multi_rail() || extent.length < SHORTEST {
        return Vec::new();
    }
    let Some(peer) = of(pml, state, home) else { return Vec::new() };
    let links = state.multi_rail.peers[peer].links.iter().filter(|link| link.rail() != home.rail());
    let registered = links.filter(|link| is_usable(pml, **link)).filter_map(|link| {
        let rail = pml.rails().get(link.rail())?;
        let access = sys::MCA_RCACHE_ACCESS_REMOTE_READ;
        // SAFETY: P2, M3: mapped until the send is finished, and the engine ends the registration before.
        let registered = unsafe { rail.port().memory().register(extent.start.cast(), extent.length, access) };
        Some((link.rail(), registered?))
    });
    registered.collect()
}

/// Lets the receiver of a long message read its data by the port of the send's link, and by others if it is long enough.
/// A key travels with the number of its port, because `routing` may send the announcement by another port.
pub(crate) fn expose(pml: &Pml, state: &mut State, send: Handle) -> Result<Exposed<Registered>, Reason> {
    let core = state.requests.core(send);
    let (link, extent) = (core.link, core.data.extent());
    let start = NonNull::new(extent.start).ok_or(Reason::Gaps)?.as_ptr();
    let address = start.expose_provenance() as u64;
    let Some(rail) = pml.rails().get(link.rail()) else {
        // A process of this host reads without a key.
        return Ok(Exposed { address, ..Exposed::default() });
    };
    let access = sys::MCA_RCACHE_ACCESS_REMOTE_READ;
    // SAFETY: P2, M3: the memory may be read until the send is finished, and its registration ends before.
    let registered = unsafe { rail.port().memory().register(start.cast(), extent.length, access) };
    let registered = registered.ok_or(Reason::NotRegistered)?;
    // SAFETY: P2, M3: the memory may be read until the send is finished, and its registrations end before.
    let others = unsafe { register(pml, state, link, extent) };
    let key = |(rail, registered): (usize, Registered)| {
        let rail = pml.rails().get(rail)?;
        Some(PortKey { port: u32::from(rail.port().index()), key: registered.rkey() })
    };
    let all = std::iter::once((link.rail(), registered)).chain(others.iter().copied());
    let keys = if pml.is_multi_rail() { all.filter_map(key).collect() } else { Vec::new() };
    Ok(Exposed { address, key: registered.rkey(), registered: Some(registered), others, keys })
}
