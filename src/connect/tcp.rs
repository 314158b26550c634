// SPDX-License-Identifier: MIT OR Apache-2.0
//! The carrier of handshakes over TCP: for adapters without datagrams, and networks that do not let them through.
//!
//! Owns one listener and the connections to and from peers of one port; `link` owns what is on one connection. The port calls
//! [`TcpCarrier::send`], [`TcpCarrier::poll`] and [`TcpCarrier::close`]; nothing blocks and nothing sleeps. A connection that
//! stands also says that the peer's process lives ([`TcpCarrier::reach`]).
//!
//! Anyone on the network can connect, so: a connection carries nothing but hellos of fixed size; the first that is not one, or
//! is not for this port's instance (a random number strangers do not know), ends it; one that stays silent is ended after
//! `STRANGER_PATIENCE`; no more than `STRANGERS` wait at a time.
//!
//! Path: setup. Threads: the port's. `poll` costs one system call while there is no connection. Tests: `tcp/tests.rs`.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use self::link::{End, Link};
use super::hello::Hello;
use super::{Reach, host};
use crate::address::PortAddress;

mod link;
#[cfg(test)]
mod tests;

/// How many connections may wait to say who they are.
const STRANGERS: usize = 256;
/// How long each may.
const STRANGER_PATIENCE: Duration = Duration::from_secs(10);
/// How long an address may leave the attempt to connect unanswered before the next one is tried.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);
/// How long the last address may.
const LAST_PATIENCE: Duration = Duration::from_secs(20);
/// How long a closed connection waits for the peer to close as well.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);
/// How many connections one poll accepts at most.
const ACCEPTS: usize = 64;
/// How many may wait in the kernel while we compute; the kernel takes the smaller of this and `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// What a carrier has seen; for the port's performance variables and verbose output.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub struct TcpCounters {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections of ours that came to stand.
    pub connected: u64,
    /// Connections ended because what came was no hello, or not for us.
    pub garbage: u64,
    /// Connections ended because nothing came in time, or too many waited.
    pub silent: u64,
    /// Times the kernel did not give us a connection or a socket (too many open files, for one).
    pub refused_by_kernel: u64,
}

/// The TCP carrier of one port.
#[derive(Debug)]
pub struct TcpCarrier {
    listener: TcpListener,
    port: u16,
    instance: u64,
    host: u64,
    ours: Vec<IpAddr>,
    links: Vec<Link>,
    /// How the last attempt to reach a peer (by instance) without a standing connection ended.
    outcomes: HashMap<u64, Reach>,
    counters: TcpCounters,
}

impl TcpCarrier {
    /// Listens on a port the kernel chooses, on all addresses. `instance` and `host` are those of the port's own
    /// [`PortAddress`]: hellos for another instance are not taken, and a peer with the same host is reached over loopback.
    ///
    /// # Errors
    /// What the kernel says to the socket, to listening or to the list of addresses.
    pub fn open(instance: u64, host: u64) -> io::Result<TcpCarrier> {
        let listener = listen()?;
        let port = listener.local_addr()?.port();
        let ours = host::all_addresses()?;
        let (links, outcomes, counters) = (Vec::new(), HashMap::new(), TcpCounters::default());
        Ok(TcpCarrier { listener, port, instance, host, ours, links, outcomes, counters })
    }

    /// The TCP port to publish, in host byte order.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The IP addresses to publish.
    #[must_use]
    pub fn addresses(&self) -> [[u8; 16]; crate::address::TCP_ADDRESSES] {
        host::published_addresses(&self.ours)
    }

    /// What was seen so far.
    #[must_use]
    pub fn counters(&self) -> TcpCounters {
        self.counters
    }

    /// Whether there is no connection, so that only new ones of others are to be waited for.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.links.is_empty()
    }

    /// Sends `hello` to `peer`, on the connection there is or a new one. Best effort, like a datagram: whoever needs an answer
    /// sends again. While an earlier hello is still waiting, this one takes its place.
    pub fn send(&mut self, peer: &PortAddress, hello: &Hello) {
        let frame = hello.encode();
        let now = Instant::now();
        if let Some(link) = self.link_to(peer.instance) {
            // An error shows at the next poll, which reads the connection.
            let _ = link.send(frame);
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
                let _ = link.send(frame);
                self.links.push(link);
            }
            Err(error) => {
                self.counters.refused_by_kernel += u64::from(error.kind() != io::ErrorKind::ConnectionRefused);
                self.outcomes.insert(peer.instance, outcome(&error));
            }
        }
    }

    /// Accepts, connects, writes and reads as far as it goes without waiting; hands over every hello that came for this port.
    pub fn poll(&mut self, deliver: &mut impl FnMut(Hello)) {
        self.accept();
        if self.links.is_empty() {
            return;
        }
        let now = Instant::now();
        let instance = self.instance;
        let mut index = 0;
        while index < self.links.len() {
            let link = &mut self.links[index];
            let stood = link.is_open();
            let end = link.advance(instance, now, deliver);
            self.counters.connected += u64::from(link.is_ours() && !stood && link.is_open());
            match end {
                Ok(()) => index += 1,
                Err(end) => {
                    let link = self.links.swap_remove(index);
                    self.ended(&link, end);
                }
            }
        }
        // A connection that stands outdates what an earlier attempt said.
        for peer in self.links.iter().filter(|link| link.is_open()).filter_map(Link::peer) {
            self.outcomes.remove(&peer);
        }
    }

    /// How far TCP gets to this peer, as of the last poll.
    #[must_use]
    pub fn reach(&self, peer: &PortAddress) -> Reach {
        let mut links = self.links.iter().filter(|link| link.peer() == Some(peer.instance)).peekable();
        let trying = links.peek().is_some();
        if links.any(Link::is_open) {
            return Reach::Open;
        }
        // A repeated attempt does not hide how the last one ended.
        let otherwise = if trying { Reach::Trying } else { Reach::Unused };
        self.outcomes.get(&peer.instance).copied().unwrap_or(otherwise)
    }

    /// Ends the connections to this peer, once what is written has left; the handshake needs them no more.
    pub fn close(&mut self, peer: &PortAddress) {
        let now = Instant::now();
        for link in self.links.iter_mut().filter(|link| link.peer() == Some(peer.instance)) {
            link.close(now);
        }
        self.outcomes.remove(&peer.instance);
    }

    /// The connection to send on: one that stands rather than one being made.
    fn link_to(&mut self, instance: u64) -> Option<&mut Link> {
        let links = self.links.iter_mut().filter(|link| link.peer() == Some(instance) && link.takes_hellos());
        links.max_by_key(|link| link.is_open())
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    self.counters.accepted += 1;
                    match Link::accepted(stream, Instant::now()) {
                        Ok(link) => self.links.push(link),
                        Err(_) => self.counters.refused_by_kernel += 1,
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    self.counters.refused_by_kernel += 1;
                    break;
                }
            }
        }
        self.show_out_strangers();
    }

    /// Ends the connections that have waited longest, when too many have not said who they are.
    fn show_out_strangers(&mut self) {
        let strangers = self.links.iter().filter(|link| link.peer().is_none()).count();
        let mut surplus = strangers.saturating_sub(STRANGERS);
        self.counters.silent += surplus as u64;
        // Newer ones are at the end, but for the few that `swap_remove` moved forward.
        self.links.retain(|link| {
            let shown_out = surplus > 0 && link.peer().is_none();
            surplus -= usize::from(shown_out);
            !shown_out
        });
    }

    fn ended(&mut self, link: &Link, end: End) {
        match end {
            End::Garbage => self.counters.garbage += 1,
            End::Silent => self.counters.silent += 1,
            End::Closed => {}
            End::Failed(reach) => {
                if let Some(peer) = link.peer() {
                    self.outcomes.insert(peer, reach);
                }
            }
        }
    }
}

/// A listener on all addresses, IPv6 and IPv4 where the host has IPv6, without blocking.
fn listen() -> io::Result<TcpListener> {
    let open = |domain, address: IpAddr| -> io::Result<TcpListener> {
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        if domain == Domain::IPV6 {
            socket.set_only_v6(false)?;
        }
        socket.bind(&SocketAddr::new(address, 0).into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    };
    open(Domain::IPV6, Ipv6Addr::UNSPECIFIED.into()).or_else(|_| open(Domain::IPV4, Ipv4Addr::UNSPECIFIED.into()))
}

/// What a failed attempt says about the peer.
fn outcome(error: &io::Error) -> Reach {
    match error.kind() {
        io::ErrorKind::ConnectionRefused
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => Reach::Refused,
        _ => Reach::Unreachable,
    }
}
