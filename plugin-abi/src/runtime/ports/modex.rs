// SPDX-License-Identifier: MIT OR Apache-2.0
//! The modex: publishes this process' ports, and reads the published ports of peers for the engine. The blob is the
//! engine's (`engine::select::address`). Stores nothing for a peer: a component fetches the blob when it adds the peer,
//! and the engine again when it connects, at the first message. The key has no version of ibex, so that different
//! versions see each other. Grade: setup. Threads: any. Tests: `hw-tests`.

use std::ffi::CStr;

use engine::messenger::header::VERSION;
use engine::peer::PeerName;
use engine::select::address::{self, AddressError, PortAddress, PortEntry};
use engine::select::partners::partners;
use engine::transport::Directory;
use ibex_ffi::openmpi::process::{self, Name, Process};
use parking_lot::Mutex;

use crate::runtime::messages;
use crate::runtime::variables::now;

const KEY: &CStr = c"btl.ibex.ports";

/// Key of the version of the PML's headers that a process uses; 0: the process has not chosen the PML.
const PML_KEY: &CStr = c"pml.ibex.chosen";

/// Addresses that this process has published. While it is locked, no port is entered and Open MPI is not called.
static PUBLISHED: Mutex<Vec<PortAddress>> = Mutex::new(Vec::new());

/// Publishes the ports of this process, in the order of the numbers that peers give them.
pub(crate) fn publish(ports: &[PortEntry]) -> Result<(), i32> {
    process::publish(KEY, &address::encode_ports(ports))?;
    *PUBLISHED.lock() = ports.iter().map(|entry| entry.address).collect();
    Ok(())
}

pub(crate) fn published() -> Vec<PortAddress> {
    PUBLISHED.lock().clone()
}

pub(crate) fn forget_published() {
    PUBLISHED.lock().clear();
}

/// Publishes whether this process has chosen ibex' PML, whose messages no other PML receives. The last call counts.
pub(crate) fn publish_pml(is_chosen: bool) -> Result<(), i32> {
    process::publish(PML_KEY, &[if is_chosen { VERSION } else { 0 }])
}

/// Returns whether a process has published that it has chosen ibex' PML, in the same version.
pub(crate) fn has_pml(peer: PeerName) -> bool {
    process::fetch(PML_KEY, to_openmpi(peer)).is_some_and(|said| said.first() == Some(&VERSION))
}

/// Returns the ports that `peer` has published; `None` if it does not run ibex or found no port.
pub(crate) fn ports_of(peer: PeerName) -> Option<Result<Vec<PortEntry>, AddressError>> {
    process::fetch(KEY, to_openmpi(peer)).map(|blob| address::decode_ports(&blob))
}

pub(crate) fn process(peer: PeerName) -> Option<Process> {
    Process::of(to_openmpi(peer))
}

pub(crate) fn from_openmpi(name: Name) -> PeerName {
    PeerName { job: name.job, rank: name.rank }
}

fn to_openmpi(peer: PeerName) -> Name {
    Name { job: peer.job, rank: peer.rank }
}

pub(crate) struct Published;

impl Directory for Published {
    fn entry(&self, peer: PeerName, port: u8) -> Option<PortEntry> {
        ports_of(peer)?.ok()?.get(usize::from(port)).copied()
    }

    fn partners(&self, peer: PeerName, port: u8) -> Vec<u8> {
        let me = Process::me().map(|me| from_openmpi(me.name()));
        // A process reaches itself by each port, whatever its fabric is.
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

    fn print(&self, line: &str) {
        messages::verbose(line);
    }
}
