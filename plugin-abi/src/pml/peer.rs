// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the link to a peer: from its rank in a communicator to the endpoint of a port.
//!
//! Called by `send`, `persistent`, `incoming` and `passage` when a rank has no link yet; makes no connection. Grade:
//! setup. Threads: any; enters a port only with nothing else entered. Tests: the MPI programs of `hw-tests`.

use engine::messenger::link::Link;
use ibex_ffi::openmpi::process::Process;
use ibex_ffi::openmpi::sys;

use super::communicator::Communicator;
use super::instance::{Pml, State};
use super::{component, libmpi, rails};
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
    pml.enter()?.flow.holders.note(link, communicator.context, rank);
    communicator.set_found(rank, link);
    Some(link)
}

/// Returns the link to a rank whose process was looked up, or is reached by shared memory.
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
