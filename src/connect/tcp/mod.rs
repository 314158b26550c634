// SPDX-License-Identifier: MIT OR Apache-2.0
//! The carrier of handshakes over TCP: for adapters without datagrams, and networks that do not let them through.
//!
//! Owns the connections to and from peers of one port; `listeners` owns the listening sockets, `link` a single
//! connection. `carriers.rs` calls it. An open connection shows that the peer's process lives ([`TcpCarrier::reach`]).
//!
//! Anyone on the network can connect, so connections are bounded in time and number. A connection carries only hellos
//! that are sealed with this port's key; anything else ends it. Its first hello must arrive within `STRANGER_PATIENCE`,
//! and at most `STRANGERS` connections wait for theirs. After that it stays open while a handshake with the peer that
//! it names is in progress, at most `LINKS` per peer; so a recorded hello that is sent again holds no resources. If
//! file descriptors run out, the carrier first closes connections without a hello.
//!
//! Grade: setup; nothing blocks. Threads: the port's. `poll` costs one system call per listening address while there is
//! no connection. Tests: `tcp/tests`.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use self::link::{End, Frame, Link, outcome};
use self::listeners::Listeners;
use super::hello::Hello;
use super::{Reach, Refusal, host};
use crate::interfaces::TCP_ADDRESSES;
use crate::select::address::PortAddress;
use crate::select::key::Key;

mod link;
mod listeners;
#[cfg(test)]
mod tests;

/// Most connections that wait for their first hello.
const STRANGERS: usize = 64;
/// Most open connections made by one peer.
const LINKS: usize = 4;
/// Most connections that one poll accepts.
const ACCEPTS: usize = 64;

/// Counts of a carrier, for the port's performance variables.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct TcpCounters {
    pub(super) accepted: u64,
    /// Connections ended because they brought no hello, or one that was not for us.
    pub(super) garbage: u64,
    /// Connections ended because no hello came in time, or too many waited.
    pub(super) silent: u64,
    /// Connections ended because the peer that they name has no handshake in progress, or too many connections.
    pub(super) needless: u64,
}

/// The TCP carrier of one port.
#[derive(Debug)]
pub(super) struct TcpCarrier {
    listeners: Listeners,
    key: Key,
    host: u64,
    ours: Vec<IpAddr>,
    links: Vec<Link>,
    /// The peers, by instance, with a handshake in progress.
    expected: HashSet<u64>,
    /// Result of the last attempt to reach a peer (by instance) without an open connection.
    outcomes: HashMap<u64, Reach>,
    pub(super) counters: TcpCounters,
}

impl TcpCarrier {
    /// Listens at `addresses`, on a port that the kernel chooses. `key` and `host` are the port's own: hellos without
    /// the key's seal are refused. The carrier never tries a peer of another host at one of `ours`.
    pub(super) fn open(key: Key, host: u64, addresses: &[IpAddr], ours: Vec<IpAddr>) -> io::Result<TcpCarrier> {
        let listeners = Listeners::open(addresses)?;
        let (links, expected, outcomes, counters) = Default::default();
        Ok(TcpCarrier { listeners, key, host, ours, links, expected, outcomes, counters })
    }

    /// The TCP port to publish, in host byte order.
    pub(super) fn port(&self) -> u16 {
        self.listeners.port
    }

    /// The IP addresses to publish: the listening ones.
    pub(super) fn addresses(&self) -> [[u8; 16]; TCP_ADDRESSES] {
        host::published(&self.listeners.addresses)
    }

    /// Whether there is no connection, so that only a peer can begin one.
    pub(super) fn is_idle(&self) -> bool {
        self.links.is_empty()
    }

    /// Notes that a handshake with this peer begins: its connections stay open until [`TcpCarrier::close`].
    pub(super) fn expect(&mut self, peer: &PortAddress) {
        self.expected.insert(peer.instance);
    }

    /// Sends a hello to `peer`, on existing connections or a new one. Best effort, like a datagram: the caller sends
    /// again if it needs an answer. A hello replaces an earlier one that still waits.
    pub(super) fn send(&mut self, peer: &PortAddress, frame: &Frame) {
        let now = Instant::now();
        if self.send_on_links(peer.instance, frame) {
            return;
        }
        let candidates = host::candidates(peer.ip_addresses(), peer.host == self.host, &self.ours);
        let addresses: Vec<SocketAddr> =
            candidates.into_iter().rev().map(|address| SocketAddr::new(address, peer.tcp_port)).collect();
        if peer.tcp_port == 0 || addresses.is_empty() {
            self.outcomes.insert(peer.instance, Reach::Unreachable);
            return;
        }
        match Link::connect(peer.instance, addresses, now) {
            Ok(mut link) => {
                let _ = link.send(*frame);
                self.links.push(link);
            }
            Err(error) => {
                self.outcomes.insert(peer.instance, outcome(&error));
            }
        }
    }

    /// Accepts, connects, writes and reads without waiting. Delivers each hello, and the reason of each refusal.
    pub(super) fn poll(&mut self, deliver: &mut impl FnMut(Result<Hello, Refusal>)) {
        self.accept();
        if self.links.is_empty() {
            return;
        }
        let now = Instant::now();
        self.end_needless(now);
        let mut index = 0;
        while index < self.links.len() {
            let link = &mut self.links[index];
            let known = link.peer.is_some();
            let end = link.advance(&self.key, now, &mut |hello| deliver(Ok(hello)));
            match end {
                Ok(()) if !known && link.peer.is_some() && self.displaces(index) => {}
                Ok(()) => index += 1,
                Err(end) => {
                    let link = self.links.swap_remove(index);
                    self.ended(&link, end, deliver);
                }
            }
        }
        // An open connection outdates the result of an earlier attempt.
        for peer in self.links.iter().filter(|link| link.is_open()).filter_map(|link| link.peer) {
            self.outcomes.remove(&peer);
        }
    }

    /// How far TCP reaches this peer, as of the last poll.
    pub(super) fn reach(&self, peer: &PortAddress) -> Reach {
        let mut links = self.links.iter().filter(|link| link.peer == Some(peer.instance)).peekable();
        let trying = links.peek().is_some();
        if links.any(Link::is_open) {
            return Reach::Open;
        }
        // A repeated attempt does not hide the result of the last one.
        let otherwise = if trying { Reach::Trying } else { Reach::Unused };
        self.outcomes.get(&peer.instance).copied().unwrap_or(otherwise)
    }

    /// Ends the connections to this peer, after pending hellos are written; the handshake needs them no more.
    pub(super) fn close(&mut self, peer: &PortAddress) {
        let now = Instant::now();
        for link in self.links.iter_mut().filter(|link| link.peer == Some(peer.instance)) {
            link.close(now);
        }
        self.outcomes.remove(&peer.instance);
        self.expected.remove(&peer.instance);
    }

    /// Sends on our own connection if it is open; else on all connections that the peer made, since one of them may
    /// belong to a stranger with a recorded hello; else on the one being made. False if there is none.
    fn send_on_links(&mut self, instance: u64, frame: &Frame) -> bool {
        let links = || self.links.iter().filter(|link| link.peer == Some(instance) && link.takes_hellos());
        let Some(best) = links().map(Link::rank).max() else { return false };
        let chosen = |link: &&mut Link| link.peer == Some(instance) && link.takes_hellos() && link.rank() == best;
        for link in self.links.iter_mut().filter(chosen) {
            // The next poll, which reads the connection, finds an error.
            let _ = link.send(*frame);
        }
        true
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            match self.listeners.accept() {
                Ok((stream, from)) => {
                    self.counters.accepted += 1;
                    // Without it the peer connects again.
                    self.links.extend(Link::accepted(stream, from, Instant::now()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    // Most likely too many open files: the next poll tries again, with some files closed.
                    self.show_out_strangers(STRANGERS / 2);
                    break;
                }
            }
        }
        self.show_out_strangers(STRANGERS);
    }

    /// Ends the oldest connections without a hello, if there are more than `most`.
    fn show_out_strangers(&mut self, most: usize) {
        let strangers = self.links.iter().filter(|link| link.peer.is_none()).count();
        let mut surplus = strangers.saturating_sub(most);
        self.counters.silent += surplus as u64;
        // Newer ones are at the end, except a few that `swap_remove` moved forward.
        self.links.retain(|link| {
            let shown_out = surplus > 0 && link.peer.is_none();
            surplus -= usize::from(shown_out);
            !shown_out
        });
    }

    /// Ends connections whose named peer has no handshake in progress; the port has handled their hellos by now.
    fn end_needless(&mut self, now: Instant) {
        let expected = &self.expected;
        let needless = |link: &&mut Link| link.peer.is_some_and(|peer| !expected.contains(&peer));
        for link in self.links.iter_mut().filter(needless).filter(|link| link.is_settled()) {
            self.counters.needless += u64::from(!link.is_ours());
            link.close(now);
        }
    }

    /// Ends the oldest connection of a peer if the one at `index`, which has just named the peer, is one too many.
    fn displaces(&mut self, index: usize) -> bool {
        let peer = self.links[index].peer;
        let same = |link: &Link| link.peer == peer && !link.is_ours();
        if self.links.iter().filter(|link| same(link)).count() <= LINKS {
            return false;
        }
        let oldest = (0..self.links.len())
            .filter(|other| same(&self.links[*other]))
            .min_by_key(|other| self.links[*other].since);
        if let Some(oldest) = oldest {
            // A connection that is being closed was counted when the closing began.
            self.counters.needless += u64::from(self.links.swap_remove(oldest).is_settled());
        }
        oldest.is_some()
    }

    fn ended(&mut self, link: &Link, end: End, deliver: &mut impl FnMut(Result<Hello, Refusal>)) {
        match end {
            End::Garbage(why) => {
                self.counters.garbage += 1;
                deliver(Err(Refusal { from: link.from, why }));
            }
            End::Turned => self.counters.garbage += 1,
            End::Silent => self.counters.silent += 1,
            End::Closed => {}
            End::Failed(reach) => {
                if let Some(peer) = link.peer {
                    self.outcomes.insert(peer, reach);
                }
            }
        }
    }
}
