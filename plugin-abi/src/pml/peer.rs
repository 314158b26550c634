// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds out how a peer is reached: from its rank in a communicator to the endpoint of a port.
//!
//! Called when the first message goes to a rank. That makes no connection. Grade: setup. Threads: any; who enters a port
//! here has entered nothing else.

use engine::peer::PeerName;
use engine::select::address;
use ibex_ffi::openmpi::process::Process;
use ibex_ffi::openmpi::sys;

use super::communicator::Communicator;
use super::instance::Pml;
use super::link::Link;
use crate::runtime::{messages, modex};

/// The way to a rank of a communicator's peers; `None` where no port of this process reaches it.
///
/// # Safety
/// `comm` is a live communicator, to which the PML was told of.
#[inline]
pub(crate) unsafe fn link(pml: &Pml, comm: *mut sys::ompi_communicator_t, rank: i32) -> Option<Link> {
    // SAFETY: this function's rule.
    let communicator = unsafe { Communicator::of(comm) };
    let link = communicator.link(rank);
    if link != Link::UNKNOWN {
        return Some(link.unmarked());
    }
    // SAFETY: this function's rule.
    let link = unsafe { find(pml, comm, rank) }?;
    communicator.set_link(rank, link);
    Some(link)
}

/// # Safety
/// As for [`link`].
#[cold]
#[inline(never)]
unsafe fn find(pml: &Pml, comm: *mut sys::ompi_communicator_t, rank: i32) -> Option<Link> {
    // SAFETY: this function's rule; a rank of its peers, as Open MPI has checked or its own code gives.
    let process = unsafe { Process::from_raw(sys::ibex_comm_peer(comm, rank)) }?;
    let peer = modex::from_openmpi(process.name());
    if let Some(link) = pml.enter()?.peers.get(&peer) {
        return Some(*link);
    }
    let link = of_process(pml, peer);
    match link {
        Ok(link) => {
            pml.enter()?.peers.insert(peer, link);
            Some(link)
        }
        Err(why) => {
            messages::no_way(peer, &process.host(), &why);
            None
        }
    }
}

/// The way to a process; else why there is none.
fn of_process(pml: &Pml, peer: PeerName) -> Result<Link, String> {
    let ports = match modex::ports_of(peer) {
        Some(Ok(ports)) => ports,
        Some(Err(error)) => return Err(error.to_string()),
        None => return Err("it published no ibex port: it runs without ibex, or found none".to_owned()),
    };
    let addresses: Vec<_> = ports.iter().map(|entry| entry.address).collect();
    let pairs = address::pair(&modex::published(), &addresses);
    let link = pml.rails().iter().enumerate().find_map(|(index, rail)| {
        let remote = pairs.get(usize::from(rail.port().index())).copied().flatten()?;
        Some(Link::new(index, rail.enter()?.peer(peer, remote as u8)))
    });
    link.ok_or_else(|| "none of its ports is on the network of one of this process'".to_owned())
}
