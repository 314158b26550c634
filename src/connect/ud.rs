// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hellos as datagrams of the fabric, which need neither an IP address nor a connection manager. Owns the port's UD
//! queue pair and the paths to the peers being connected to. Called by `carriers.rs`. Grade: setup; a poll reads the
//! queue pair's own completion queue. Threads: the port's. Tests: at the end of the file, and the device tests.

use super::hello::Hello;
use crate::select::address::PortAddress;
use crate::select::device::PortChoice;
use crate::tunables::Tunables;
use ibex_ffi::verbs::{AddressHandle, Context, Path, ProtectionDomain, UdQueuePair};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// The queue key of all ibex ports. Its high bit is clear: the kernel reserves the other keys.
const QUEUE_KEY: u32 = 0x1be5_0001;
/// Datagrams that may wait to be read, and datagrams that may be in flight.
const DEPTH: u32 = 256;

/// The datagram carrier of a port.
#[derive(Debug)]
pub struct UdCarrier {
    /// The path to each port, by the port's instance.
    ways: HashMap<u64, Arc<AddressHandle>>,
    qp: UdQueuePair,
    context: Arc<Context>,
    domain: Arc<ProtectionDomain>,
    /// Port and partition key index.
    place: (u8, u16),
}

/// The path from `choice` to a port at `remote`, for the queue pair `qp_num` there.
pub(crate) fn path(choice: &PortChoice, tunables: &Tunables, remote: &PortAddress, qp_num: u32) -> Path {
    // InfiniBand needs the global header only to leave its subnet; RoCE has no other address.
    let global = choice.is_ethernet() || remote.subnet_prefix != choice.subnet_prefix();
    Path {
        qp_num,
        psn: 0,
        mtu: u32::from(choice.mtu.min(remote.mtu)),
        lid: remote.lid,
        gid: global.then_some(remote.gid),
        gid_index: choice.gid_index,
        port: choice.port,
        service_level: tunables.service_level as u8,
        traffic_class: tunables.traffic_class as u8,
    }
}

fn new_queue_pair(context: &Arc<Context>, domain: &Arc<ProtectionDomain>, place: (u8, u16)) -> io::Result<UdQueuePair> {
    let limits = context.attributes()?;
    // The completion queue must hold `depth` sends and `depth` receives.
    let depth = DEPTH.min(limits.max_qp_wr).min(limits.max_cqe / 2);
    UdQueuePair::new(context, domain, place, (Hello::SIZE, depth), QUEUE_KEY)
}

impl UdCarrier {
    /// Makes the queue pair and posts its receives.
    ///
    /// # Errors
    /// The adapter's error; `EOPNOTSUPP` or `EINVAL` if it has no UD.
    pub fn open(
        context: &Arc<Context>,
        domain: &Arc<ProtectionDomain>,
        choice: &PortChoice,
        tunables: &Tunables,
    ) -> io::Result<Self> {
        let place = (choice.port, tunables.pkey_index as u16);
        let qp = new_queue_pair(context, domain, place)?;
        Ok(Self { ways: HashMap::new(), qp, context: Arc::clone(context), domain: Arc::clone(domain), place })
    }

    /// Repairs the queue pair after an error of [`Self::poll`]. A reset keeps the number that the peers have from the
    /// modex. If the adapter cannot reset it (`irdma`), or the completion queue is broken, a new queue pair replaces
    /// it, whose number only our hellos carry: a peer that has got none of them reaches us by TCP. If none can be made,
    /// datagrams cannot be used any more.
    pub(crate) fn restart(&mut self) -> io::Result<()> {
        if self.qp.restart().is_err() {
            self.qp = new_queue_pair(&self.context, &self.domain, self.place)?;
        }
        Ok(())
    }

    /// Number of the queue pair. The modex has it; after [`Self::restart`] perhaps only our hellos have it.
    pub(crate) fn number(&self) -> u32 {
        self.qp.number()
    }

    /// Sends a sealed hello to the port at `remote`, along `path`.
    ///
    /// # Errors
    /// The path could not be resolved, or the datagram not posted. The next try may succeed.
    pub fn send(&mut self, remote: &PortAddress, path: &Path, frame: &[u8; Hello::SIZE]) -> io::Result<()> {
        let way = match self.ways.entry(remote.instance) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => new.insert(AddressHandle::new(&self.domain, path)?),
        };
        self.qp.send(way, remote.ud_qpn, frame)
    }

    /// Passes the bytes of each received datagram to `take`.
    ///
    /// # Errors
    /// The queue pair is broken: no datagram arrives until `restart`.
    pub fn poll(&mut self, take: impl FnMut(&[u8])) -> io::Result<usize> {
        self.qp.receive(take)
    }

    /// Forgets the path to the port with this `instance`.
    pub(crate) fn forget(&mut self, instance: u64) {
        // The last hello may still be in flight; the queue pair keeps its path until then.
        self.ways.remove(&instance);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::address::tests::{ethernet, infiniband};

    fn is_global(here: &PortAddress, there: &PortAddress) -> bool {
        let PortAddress { link_layer, lid, gid, gid_type, mtu, .. } = *here;
        let (device, port, gid_index, subnet_length) = (String::new(), 1, 0, 0);
        let choice = PortChoice { device, port, link_layer, lid, gid_index, gid, subnet_length, gid_type, mtu };
        path(&choice, &Tunables::default(), there, 1).gid.is_some()
    }

    #[test]
    fn a_global_header_is_for_ethernet_and_for_other_subnets() {
        assert!(is_global(&ethernet(), &ethernet()));
        assert!(!is_global(&infiniband(1), &infiniband(1)));
        assert!(is_global(&infiniband(1), &infiniband(2)));
    }
}
