// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connects two processes by one message, the hello, repeated until both know that the other's queue pair is set.
//!
//! - [`hello`]: the message and its seal; [`handshake`]: one side's state machine per peer.
//! - [`ud`] and [`tcp`]: the carriers of hellos; [`host`] and [`crate::interfaces`]: this host's data for TCP.
//!
//! This file owns the types that they share. The port passes each hello to its sender's handshake, executes the
//! resulting [`handshake::Step`], and calls the handshake when it is due. Grade: setup. Threads: the port's. Times:
//! since any fixed moment, the same for all calls. Tests: in each file.

pub mod carriers;
pub(crate) mod handshake;
pub mod hello;
pub mod host;
mod tcp;
pub mod ud;

pub use self::hello::Identity;

use self::hello::HelloError;
use crate::select::address::PortAddress;
use crate::tunables::{ConnectVia, Tunables};
use std::net::SocketAddr;

/// The carrier that brought a hello.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Carrier {
    /// The datagram queue pair.
    Ud,
    /// A TCP connection.
    Tcp,
}

/// Bytes from a carrier that are no hello for this port.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Their sender, as far as the carrier knows.
    pub from: Option<SocketAddr>,
    /// The reason.
    pub why: HelloError,
}

/// The carriers for a hello.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Via {
    /// The datagram queue pair.
    Ud,
    /// A TCP connection.
    Tcp,
    /// Both; the hello may arrive by either.
    Both,
}

impl Via {
    /// Whether it includes the datagram queue pair.
    pub fn ud(self) -> bool {
        self != Via::Tcp
    }

    /// Whether it includes TCP.
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

/// How far TCP reaches a peer.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub enum Reach {
    /// This process has sent nothing to it over TCP yet.
    #[default]
    Unused,
    /// A connection is being made.
    Trying,
    /// A connection is open: the peer's process lives, even if it does not answer.
    Open,
    /// The connection was refused or reset: the process has ended, or a firewall pretends so.
    Refused,
    /// No address of the peer answers.
    Unreachable,
}

/// The carriers that two ports have in common.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Paths {
    /// Both have a datagram queue pair, and it is permitted.
    pub ud: bool,
    /// The peer listens on TCP, and it is permitted.
    pub tcp: bool,
}

impl Paths {
    /// Returns the carriers that both ports have and `btl_ibex_connect_via` permits. `has_tcp`: this process has TCP.
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
    /// A separate sequence for each seed.
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

    #[test]
    fn random_numbers_are_those_of_splitmix64() {
        let mut random = Random::new(0);
        let published = [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f];
        assert_eq!([(); 3].map(|()| random.number()), published);
        assert_eq!((random.below(0), random.below(1)), (0, 0));
    }
}
