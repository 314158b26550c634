// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handshakes of a port that are in progress: peers, carriers and due times, and this side's own data. Owned by the
//! port, driven by `port/connect.rs`. Grade: setup. Threads: the port's. Tests: below, and `port/tests`.

use crate::connect::carriers::{Arrivals, Carriers, Look};
use crate::connect::handshake::Handshake;
use crate::connect::hello::{Hello, QpInfo};
use crate::connect::{Identity, Paths, Random, Reach, Via};
use crate::counters::{Counters, add};
use crate::select::PortChoice;
use crate::select::address::{PortAddress, PortEntry};
use crate::transport::connections::search::Search;
use crate::transport::work_request::{EndpointId, Immediate};
use crate::tunables::Tunables;
use ibex_ffi::verbs::Path;
use std::io;
use std::time::Duration;

/// This side's data in every hello.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ourselves {
    pub(crate) identity: Identity,
    /// Reads and atomics that a queue pair may have in flight, as initiator and as responder.
    pub(crate) rd_atomic: (u8, u8),
}

#[derive(Debug)]
pub(crate) struct Handshakes<C> {
    carriers: C,
    ourselves: Ourselves,
    /// Peers whose handshake is not confirmed yet, with the address of the asked port.
    active: Vec<(EndpointId, PortAddress)>,
    /// Searches among a peer's ports, if there is a choice.
    searches: Vec<(EndpointId, Search)>,
    /// Addresses of the ports that searches have asked before the current one, each with its peer's endpoint.
    left: Vec<(EndpointId, PortAddress)>,
    /// Time before which no handshake has anything to do.
    next_due: Duration,
    /// Number of connections that this side has begun.
    epoch: u32,
    random: Random,
}

impl<C: Carriers> Handshakes<C> {
    pub(crate) fn new(carriers: C, ourselves: Ourselves) -> Self {
        let random = Random::new(ourselves.identity.address.instance);
        Handshakes {
            carriers,
            ourselves,
            active: Vec::new(),
            searches: Vec::new(),
            left: Vec::new(),
            next_due: Duration::ZERO,
            epoch: 0,
            random,
        }
    }

    pub(crate) fn carriers(&self) -> &C {
        &self.carriers
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.ourselves.identity
    }

    /// Notes the port's new LID and GID, which this side's hellos carry. The modex keeps the old ones.
    pub(crate) fn readdress(&mut self, choice: &PortChoice) {
        let ours = &mut self.ourselves.identity.address;
        *ours = PortAddress { lid: choice.lid, gid: choice.gid, subnet_prefix: choice.subnet_prefix(), ..*ours };
        // The paths to the peers begin at the old GID.
        self.active.iter().for_each(|(_, peer)| self.carriers.forget(peer.instance));
    }

    pub(crate) fn entry(&self) -> PortEntry {
        PortEntry { address: self.ourselves.identity.address, key: self.ourselves.identity.key }
    }

    pub(crate) fn begin(
        &mut self,
        (to, qpn): (EndpointId, u32),
        remote: &PortAddress,
        remote_port: u8,
        now: Duration,
        tunables: &Tunables,
    ) -> Handshake {
        let local = QpInfo {
            qpn,
            psn: (self.random.number() & 0x00ff_ffff) as u32,
            epoch: self.next_epoch(),
            initiator_depth: self.ourselves.rd_atomic.0,
            responder_resources: self.ourselves.rd_atomic.1,
            endpoint: Immediate::endpoint_bits(to.index()),
        };
        let paths = self.paths(remote, tunables);
        Handshake::new(local, remote.instance, remote_port, paths, now, tunables)
    }

    pub(crate) fn next_epoch(&mut self) -> u32 {
        self.epoch += 1;
        self.epoch
    }

    /// Returns the carriers of hellos to this port of a peer.
    pub(crate) fn paths(&self, remote: &PortAddress, tunables: &Tunables) -> Paths {
        Paths::between(&self.ourselves.identity.address, remote, self.carriers.has_tcp(), tunables)
    }

    pub(crate) fn put_search(&mut self, peer: EndpointId, search: Search) {
        self.searches.retain(|(of, _)| *of != peer);
        self.searches.push((peer, search));
    }

    /// Returns the search for a peer; `None` if there is no choice, or the handshake is over.
    pub(crate) fn search(&mut self, peer: EndpointId) -> Option<&mut Search> {
        self.searches.iter_mut().find(|(of, _)| *of == peer).map(|(_, search)| search)
    }

    /// Continues the handshake with this peer at its port at `address`.
    pub(crate) fn ask_port(&mut self, peer: EndpointId, address: PortAddress) {
        self.carriers.expect(&address);
        let Some((_, known)) = self.active.iter_mut().find(|(active, _)| *active == peer) else { return };
        let before = std::mem::replace(known, address);
        self.next_due = Duration::ZERO;
        if before.instance == address.instance {
            return;
        }
        self.carriers.forget(before.instance);
        // TCP to the former port goes on: its answer may still come, and a connection shows that the process lives.
        self.left.retain(|(of, left)| *of != peer || ![before.instance, address.instance].contains(&left.instance));
        self.left.push((peer, before));
    }

    pub(crate) fn activate(&mut self, peer: EndpointId, address: PortAddress) {
        self.carriers.expect(&address);
        self.active.push((peer, address));
        self.next_due = Duration::ZERO;
    }

    /// Notes the peer's present address from its hello. The modex has the address that it had at its start.
    pub(crate) fn relocate(&mut self, peer: EndpointId, address: &PortAddress) {
        let Some((_, known)) = self.active.iter_mut().find(|(active, _)| *active == peer) else { return };
        if known != address {
            *known = *address;
            self.carriers.forget(address.instance);
        }
    }

    pub(crate) fn settle(&mut self, peer: EndpointId) {
        let Some(place) = self.active.iter().position(|(active, _)| *active == peer) else { return };
        let (_, address) = self.active.swap_remove(place);
        self.carriers.settle(&address);
        self.searches.retain(|(of, _)| *of != peer);
        for (_, address) in self.left.extract_if(.., |(of, _)| *of == peer) {
            self.carriers.settle(&address);
        }
    }

    /// Hot.
    #[inline]
    pub(crate) fn is_any_active(&self) -> bool {
        !self.active.is_empty()
    }

    pub(crate) fn active(&self) -> Vec<(EndpointId, PortAddress)> {
        self.active.clone()
    }

    pub(crate) fn are_due(&self, now: Duration) -> bool {
        now >= self.next_due
    }

    pub(crate) fn set_due(&mut self, due: Duration) {
        self.next_due = due;
    }

    /// Returns how far TCP reaches a peer whose port at `remote` is being asked.
    pub(crate) fn reach(&self, peer: EndpointId, remote: &PortAddress) -> Reach {
        let is_open = |(of, left): &(EndpointId, PortAddress)| *of == peer && self.carriers.reach(left) == Reach::Open;
        if self.left.iter().any(is_open) { Reach::Open } else { self.carriers.reach(remote) }
    }

    /// Receives hellos, `polls` polls after the last call; `now` reads the clock.
    pub(crate) fn receive(&mut self, now: &dyn Fn() -> Duration, polls: u32, counters: &Counters) -> Arrivals {
        let arrivals = self.carriers.receive(Look { now, polls, is_busy: self.is_any_active() }, counters);
        // A repair may have changed the number. The modex keeps the old one, so this side's hellos carry the new one.
        self.ourselves.identity.address.ud_qpn = self.carriers.ud_qpn();
        add(&counters.handshakes_received, (arrivals.hellos.len() + arrivals.refusals.len()) as u64);
        arrivals
    }

    /// Sends a sealed hello. `to` is `None` if it belongs to no handshake of this side.
    pub(crate) fn send(
        &mut self,
        to: Option<EndpointId>,
        via: Via,
        (remote, path): (&PortAddress, &Path),
        frame: &[u8; Hello::SIZE],
        counters: &Counters,
    ) {
        add(&counters.handshakes_sent, 1);
        self.carriers.send(remote, path, via, frame);
        if !self.active.iter().any(|(active, _)| Some(*active) == to) {
            self.carriers.forget(remote.instance);
        }
    }

    /// Returns the address of the port that is being asked; `None` if the handshake is over.
    pub(crate) fn asked(&self, peer: EndpointId) -> Option<PortAddress> {
        self.active.iter().find(|(active, _)| *active == peer).map(|(_, address)| *address)
    }

    pub(crate) fn carrier_error(&self) -> Option<&io::Error> {
        self.carriers.error()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::PeerName;
    use crate::select::address::tests::ethernet;
    use crate::select::key::Key;

    /// Carriers that note the ports whose handshakes are over.
    #[derive(Default)]
    struct Settled(Vec<u64>);

    impl Carriers for Settled {
        fn send(&mut self, _: &PortAddress, _: &Path, _: Via, _: &[u8; Hello::SIZE]) {}
        fn receive(&mut self, _: Look<'_>, _: &Counters) -> Arrivals {
            Arrivals::default()
        }
        fn settle(&mut self, peer: &PortAddress) {
            self.0.push(peer.instance);
        }
        fn ud_qpn(&self) -> u32 {
            0
        }
        fn has_tcp(&self) -> bool {
            false
        }
    }

    #[test]
    fn the_end_of_a_handshake_settles_all_ports_that_it_has_asked_and_leaves_other_peers_alone() {
        let address = |instance| PortAddress { instance, ..ethernet() };
        let key = Key::from_bytes([1; Key::SIZE]);
        let identity = Identity { name: PeerName { job: 1, rank: 0 }, port: 0, address: address(1), key };
        let ourselves = Ourselves { identity, rd_atomic: (1, 1) };
        let mut handshakes = Handshakes::new(Settled::default(), ourselves);
        let peers = [0, 1].map(EndpointId::from_index);
        for (peer, instance) in peers.into_iter().zip([10, 20]) {
            handshakes.activate(peer, address(instance));
            handshakes.put_search(peer, Search::new(&[0, 1], 0).expect("a choice"));
            handshakes.ask_port(peer, address(instance + 1));
        }
        for (over, settled, searches) in [(0, &[11, 10][..], [false, true]), (1, &[11, 10, 21, 20], [false; 2])] {
            handshakes.settle(peers[over]);
            assert_eq!(handshakes.carriers.0, settled);
            assert_eq!(peers.map(|peer| handshakes.search(peer).is_some()), searches);
        }
    }
}
