// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connecting two processes: one message type, repeated until both sides know that the other side's queue pair is set.
//!
//! - [`hello`]: the message, its bytes and its checks; it proves to come from the job ([`crate::select::key`]).
//! - [`handshake`]: what one side does with it, per peer: a state machine without clock, network or adapter.
//! - `ud` and [`tcp`]: what carries it; [`host`] and [`crate::interfaces`]: what TCP needs to know of this host.
//!
//! This file owns the words they share: what carries hellos, and how far. The port drives it all: it gives a hello
//! that a carrier delivered to the handshake of its sender, does the [`handshake::Step`] that comes back, and asks
//! again when the handshake is due. Path: setup. Threads: the port's. Times: since any fixed moment, the same for all
//! calls. Tests: in each file; [`handshake`] has a simulation of both sides over a bad network.

pub mod carriers;
pub mod handshake;
pub mod hello;
pub mod host;
pub mod tcp;
pub mod ud;

pub use self::hello::Identity;

use self::hello::HelloError;
use crate::select::address::PortAddress;
use crate::tunables::{ConnectVia, Tunables};
use std::net::SocketAddr;

/// What brought a hello.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Carrier {
    /// The datagram queue pair.
    Ud,
    /// A TCP connection.
    Tcp,
}

/// What a carrier brought that is no hello for this port.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// From where, as far as the carrier knows.
    pub from: Option<SocketAddr>,
    /// Why.
    pub why: HelloError,
}

/// What shall carry a hello.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Via {
    /// The datagram queue pair.
    Ud,
    /// A TCP connection.
    Tcp,
    /// Both: whichever gets through.
    Both,
}

impl Via {
    /// Whether the datagram queue pair is part of it.
    #[must_use]
    pub fn ud(self) -> bool {
        self != Via::Tcp
    }

    /// Whether TCP is part of it.
    #[must_use]
    pub fn tcp(self) -> bool {
        self != Via::Ud
    }
}

impl From<Carrier> for Via {
    fn from(carrier: Carrier) -> Via {
        match carrier {
            Carrier::Ud => Via::Ud,
            Carrier::Tcp => Via::Tcp,
        }
    }
}

/// How far TCP gets to a peer.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub enum Reach {
    /// Nothing was sent to it over TCP yet.
    #[default]
    Unused,
    /// A connection is being made.
    Trying,
    /// A connection stands: the peer's process lives, even if it does not answer.
    Open,
    /// The peer's host says that nobody listens, or the connection was reset: the process has ended, or a firewall says
    /// so.
    Refused,
    /// No address of the peer answers.
    Unreachable,
}

/// Which carriers two ports have in common.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Paths {
    /// Both have a datagram queue pair, and it is permitted.
    pub ud: bool,
    /// The peer listens on TCP, and it is permitted.
    pub tcp: bool,
}

impl Paths {
    /// What `local` and `remote` have in common and `btl_ibex_connect_via` permits.
    ///
    /// `has_tcp`: this process could open its own TCP carrier.
    #[must_use]
    pub fn between(local: &PortAddress, remote: &PortAddress, has_tcp: bool, tunables: &Tunables) -> Paths {
        let via = tunables.via();
        Paths {
            ud: via != ConnectVia::Tcp && local.ud_qpn != 0 && remote.ud_qpn != 0,
            tcp: via != ConnectVia::Ud && has_tcp && remote.tcp_port != 0,
        }
    }
}

/// Small reproducible pseudo-random numbers (`SplitMix64`), for sequence numbers and tests. Not for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A sequence of its own for each seed.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number().checked_rem(limit).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::address::tests::ethernet;

    #[test]
    fn a_path_needs_both_ends_and_permission() {
        let (full, bare) = (ethernet(), PortAddress { ud_qpn: 0, tcp_port: 0, ..ethernet() });
        let with = |via: &str| Tunables { connect_via: via.to_owned(), ..Tunables::default() };
        let paths = |a, b, tcp, via| Paths::between(a, b, tcp, &with(via));
        assert_eq!(paths(&full, &full, true, "auto"), Paths { ud: true, tcp: true });
        assert_eq!(paths(&full, &full, true, "ud"), Paths { ud: true, tcp: false });
        assert_eq!(paths(&full, &full, true, "tcp"), Paths { ud: false, tcp: true });
        assert_eq!(paths(&full, &full, false, "auto"), Paths { ud: true, tcp: false });
        assert_eq!(paths(&bare, &full, true, "auto"), Paths { ud: false, tcp: true });
        assert_eq!(paths(&full, &bare, true, "auto"), Paths { ud: false, tcp: false });
    }
}
