// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds out how a peer is reached: from its rank in a communicator to the endpoint of a port.
//!
//! Called when the first message goes to a rank. That makes no connection. Grade: setup. Threads: any; who enters a
//! port here has entered nothing else.

use ibex_ffi::openmpi::process::Process;
use ibex_ffi::openmpi::sys;

use super::communicator::Communicator;
use super::instance::{Pml, State};
use super::link::Link;
use super::{component, rails};
use crate::runtime::variables::now;
use crate::runtime::{messages, modex};

/// The way to a rank of a communicator's peers; `None` where no port of this process reaches it.
///
/// # Safety
/// P4, or P1 of a request on it: `comm` is a live communicator, which the PML was told of.
#[inline]
pub(crate) unsafe fn link(pml: &Pml, comm: *mut sys::ompi_communicator_t, rank: i32) -> Option<Link> {
    // SAFETY: `comm` is a live communicator, which the PML was told of.
    let communicator = unsafe { Communicator::of(comm) };
    let link = communicator.link(rank);
    if link != Link::UNKNOWN {
        return Some(link.unmarked());
    }
    // SAFETY: `comm` is a live communicator, which the PML was told of.
    let link = unsafe { find(pml, comm, rank) }?;
    pml.enter()?.flow.holders.note(link, communicator.context, rank);
    communicator.set_found(rank, link);
    Some(link)
}

/// The way to a rank, if that was looked for, or is by shared memory. For who has entered the PML.
///
/// # Safety
/// `comm` is a live communicator, which the PML was told of.
pub(crate) unsafe fn known(state: &State, comm: *mut sys::ompi_communicator_t, rank: i32) -> Option<Link> {
    // SAFETY: `comm` is a live communicator, which the PML was told of.
    let process = unsafe { process(comm, rank) }?;
    state.peers.get(&modex::from_openmpi(process.name())).copied()
}

/// The process with a rank of a communicator's peers. `None`: it has no such rank, as a message of a broken peer may say.
///
/// # Safety
/// `comm` is a live communicator, which the PML was told of.
pub(crate) unsafe fn process(comm: *mut sys::ompi_communicator_t, rank: i32) -> Option<Process> {
    // SAFETY: `comm` is a live communicator, which the PML was told of, and has such a rank.
    unsafe { if Communicator::of(comm).has(rank) { Process::from_raw(sys::ibex_comm_peer(comm, rank)) } else { None } }
}

/// # Safety
/// `comm` is a live communicator, which the PML was told of.
#[cold]
#[inline(never)]
unsafe fn find(pml: &Pml, comm: *mut sys::ompi_communicator_t, rank: i32) -> Option<Link> {
    // SAFETY: `comm` is a live communicator, which the PML was told of.
    let process = unsafe { process(comm, rank) }?;
    let peer = modex::from_openmpi(process.name());
    if let Some(link) = pml.enter()?.peers.get(&peer) {
        return Some(*link);
    }
    if Process::me().is_some_and(|me| me.name() == process.name()) {
        pml.enter()?.peers.insert(peer, Link::ONESELF);
        return Some(Link::ONESELF);
    }
    if !component::is_same(process) {
        return None;
    }
    let link = rails::links_to(pml, peer);
    match link {
        Ok(links) => {
            if now::verbosity() > 0 {
                let places = links.iter().filter_map(|link| Some(pml.rails().get(link.rail())?.port().place()));
                let places: Vec<String> = places.map(ToString::to_string).collect();
                messages::verbose(&format!("rank {} is reached by {}", peer.rank, places.join(", ")));
            }
            let mut state = pml.enter()?;
            let link = if pml.has_several() {
                let peer = rails::add(pml, &mut state, peer, links);
                state.several.peers[peer].home.of_several()
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
