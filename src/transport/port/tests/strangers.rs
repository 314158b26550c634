// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets of the handshake that a port refuses: it counts each, and prints each kind once for a verbose user.

use super::*;
use crate::connect::Refusal;
use crate::connect::hello::{Hello, HelloError};
use pair::Published;
use std::sync::Mutex;

/// The processes of a pair, and the lines for a user of this verbosity.
struct Printing {
    published: Published,
    verbosity: u64,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Directory for Printing {
    fn entry(&self, peer: PeerName, port: u8) -> Option<PortEntry> {
        self.published.entry(peer, port)
    }

    fn host(&self, peer: PeerName) -> String {
        self.published.host(peer)
    }

    fn verbosity(&self) -> u64 {
        self.verbosity
    }

    fn print(&self, line: &str) {
        self.lines.lock().expect("no test failed in it").push(line.to_owned());
    }
}

/// A directory of a host that admits every process. It knows only those that were admitted.
struct Admitting {
    published: Published,
    admitted: Arc<Mutex<Vec<(PeerName, PortEntry)>>>,
}

impl Directory for Admitting {
    fn entry(&self, peer: PeerName, _port: u8) -> Option<PortEntry> {
        let admitted = self.admitted.lock().expect("no test failed in it");
        admitted.iter().find(|(name, _)| *name == peer).map(|(_, entry)| *entry)
    }

    fn admits(&self, peer: PeerName, _port: u8, entry: PortEntry) -> bool {
        self.admitted.lock().expect("no test failed in it").push((peer, entry));
        true
    }

    fn host(&self, peer: PeerName) -> String {
        self.published.host(peer)
    }
}

#[test]
fn a_port_connects_with_a_process_that_only_its_hello_makes_known_if_its_host_admits_it() {
    let mut pair = Pair::apart();
    let (admitted, published) = (Arc::default(), pair.published.clone());
    pair.a.port.directory = Box::new(Admitting { published, admitted: Arc::clone(&admitted) });
    pair.b.send(1).expect("it may wait");
    pair.carry();
    assert!(pair.a.script.connected().is_some() && pair.b.script.connected().is_some());
    let admitted = admitted.lock().expect("no test failed in it");
    let me = pair.a.port.peer_name(pair.a.peer).expect("the other side");
    assert_eq!(admitted[..], [(me, pair.b.port.entry())]);
}

#[test]
fn a_port_counts_each_refused_packet_and_prints_each_kind_once_for_a_verbose_user() {
    for (verbosity, kinds) in [(0, 0), (1, 3)] {
        let mut pair = Pair::apart();
        let (lines, published) = (Arc::default(), pair.published.clone());
        pair.a.port.directory = Box::new(Printing { published, verbosity, lines: Arc::clone(&lines) });
        pair.b.send(1).expect("it may wait");
        let good = Hello::decode(&pair.b.script.state().sent[0].1, &pair.a.key).expect("sealed for the other side");
        let mut of_nobody = good;
        of_nobody.source.port = 9;
        let mut of_another = good;
        of_another.source.address.instance += 100;
        for _ in 0..2 {
            let refusal = Refusal { from: None, why: HelloError::Magic };
            pair.a.port.refuse(&refusal);
            for hello in [&of_nobody, &of_another] {
                // Look-ups in vain are rare.
                pair.a.script.state().now += Duration::from_secs(1);
                pair.a.script.state().incoming.push_back(*hello);
                (0..2 * EMPTY_POLL).for_each(|_| pair.a.poll());
            }
        }
        assert_eq!(pair.a.count(|counters| &counters.handshakes_dropped), 6);
        let lines = lines.lock().expect("no test failed in it");
        assert_eq!(lines.len(), kinds, "{lines:?}");
        for (line, part) in lines.iter().zip([
            "refused what came as a datagram: a handshake packet does not begin with",
            "which has published no such port",
            "which has published another instance of that port",
        ]) {
            assert!(line.starts_with("fabric0:1: ") && line.contains(part), "{line}");
        }
    }
}
