// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each process publishes about its ports, and the engine's window on what the others published.
//!
//! The blob is the engine's (`engine::select::address`: versioned, fixed-size records); this file only carries it.
//! Nothing is kept for a peer: the blob is fetched when the peer is added and once more when the first message to it
//! makes a connection. Grade: setup. Threads: any. The key carries no version of ibex, so that different ones see each
//! other.

use std::ffi::CStr;
use std::sync::{Mutex, PoisonError};

use engine::peer::PeerName;
use engine::protocol::header::VERSION;
use engine::select::address::{self, AddressError, PortAddress, PortEntry};
use engine::select::partners::partners;
use engine::transport::Directory;
use ibex_ffi::openmpi::modex;
use ibex_ffi::openmpi::process::{Name, Process};

use super::messages;
use super::variables::now;

const KEY: &CStr = c"btl.ibex.ports";

/// Under it stands which version of the PML's headers a process speaks; 0: it has not chosen the PML.
const PML_KEY: &CStr = c"pml.ibex.chosen";

/// The addresses this process has published. Nobody enters a port or calls Open MPI while this is locked.
static PUBLISHED: Mutex<Vec<PortAddress>> = Mutex::new(Vec::new());

/// Publishes the ports of this process, in the order in which peers will number them.
pub(crate) fn publish(ports: &[PortEntry]) -> Result<(), i32> {
    modex::publish(KEY, &address::encode_ports(ports))?;
    set_published(ports.iter().map(|entry| entry.address).collect());
    Ok(())
}

/// The addresses this process has published, by the ports' numbers.
pub(crate) fn published() -> Vec<PortAddress> {
    PUBLISHED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The ports that were published are closed.
pub(crate) fn forget_published() {
    set_published(Vec::new());
}

fn set_published(addresses: Vec<PortAddress>) {
    *PUBLISHED.lock().unwrap_or_else(PoisonError::into_inner) = addresses;
}

/// Says whether this process' messages go by ibex' PML: a process that chose another never hears them. The last word
/// counts.
pub(crate) fn publish_pml(is_chosen: bool) -> Result<(), i32> {
    modex::publish(PML_KEY, &[if is_chosen { VERSION } else { 0 }])
}

/// Whether a process has said that they do.
pub(crate) fn has_pml(peer: PeerName) -> bool {
    modex::fetch(PML_KEY, to_openmpi(peer)).is_some_and(|said| said.first() == Some(&VERSION))
}

/// What `peer` published; `None` where it runs no ibex, or found no port.
pub(crate) fn ports_of(peer: PeerName) -> Option<Result<Vec<PortEntry>, AddressError>> {
    modex::fetch(KEY, to_openmpi(peer)).map(|blob| address::decode_ports(&blob))
}

/// The process named so by Open MPI.
pub(crate) fn process(peer: PeerName) -> Option<Process> {
    Process::of(to_openmpi(peer))
}

/// Open MPI's name as the engine's.
pub(crate) fn from_openmpi(name: Name) -> PeerName {
    PeerName { job: name.job, rank: name.rank }
}

fn to_openmpi(peer: PeerName) -> Name {
    Name { job: peer.job, rank: peer.rank }
}

/// The engine's window on the modex.
pub(crate) struct Published;

impl Directory for Published {
    fn entry(&self, peer: PeerName, port: u8) -> Option<PortEntry> {
        ports_of(peer)?.ok()?.get(usize::from(port)).copied()
    }

    fn partners(&self, peer: PeerName, port: u8) -> Vec<u8> {
        let me = Process::me().map(|me| from_openmpi(me.name()));
        // A process reaches itself by each port, whatever its fabric.
        let Some(me) = me.filter(|me| *me != peer) else { return Vec::new() };
        let Some(Ok(ports)) = ports_of(peer) else { return Vec::new() };
        let remote: Vec<_> = ports.iter().map(|entry| entry.address).collect();
        partners(&published(), &remote, port.into(), me < peer)
    }

    fn host(&self, peer: PeerName) -> String {
        process(peer).map_or_else(|| "an unknown host".to_owned(), Process::host)
    }

    fn verbosity(&self) -> u64 {
        now::verbosity()
    }

    fn tell(&self, line: &str) {
        messages::verbose(line);
    }
}
