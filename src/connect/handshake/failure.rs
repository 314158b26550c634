// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reason why a connection could not be made, as a message: what was tried, where, how often, and advice. The
//! handshake makes the reason, the port the message. Path: setup. Threads: plain data. Tests: `tests.rs`.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use super::super::{Paths, Reach};
use crate::peer::PeerName;
use crate::select::address::PortAddress;

/// Why a connection could not be made, and what was tried.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    /// Kind of the failure.
    pub reason: FailureReason,
    /// The carriers that the ports have in common.
    pub paths: Paths,
    /// Number of hellos sent as datagrams.
    pub ud_sent: u32,
    /// Number of hellos sent over TCP.
    pub tcp_sent: u32,
    /// Number of hellos received from the peer.
    pub heard: u32,
    /// How far TCP reached the peer.
    pub reach: Reach,
    /// Time since the peer was last heard.
    pub silent: Duration,
}

/// The kinds of failure.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum FailureReason {
    /// The two ports have no carrier in common.
    NoCarrier,
    /// The peer sent no hello.
    Unanswered,
    /// The peer sent a hello, but went silent before it confirmed.
    Unconfirmed,
}

impl Failure {
    /// The whole message: the peer, the local port (`rxe0:1`), what was tried and how often, and advice.
    #[must_use]
    pub fn message(&self, peer: PeerName, local_port: &str, remote: &PortAddress) -> String {
        format!("no connection from port {local_port} to peer {peer}: {}", fmt::from_fn(|f| self.explain(remote, f)))
    }

    fn explain(&self, remote: &PortAddress, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { reason, paths, ud_sent, tcp_sent, heard, reach, silent } = *self;
        if reason == FailureReason::NoCarrier {
            return write!(
                f,
                "the handshake has nothing to go by (datagram queue pair of the peer: {}; its TCP port: {}): \
                 set btl_ibex_connect_via to auto, or use another BTL between these hosts",
                present(remote.ud_qpn),
                present(remote.tcp_port.into()),
            );
        }
        match reason {
            FailureReason::Unanswered => write!(f, "it did not answer for {} s", silent.as_secs())?,
            _ => write!(f, "it sent {heard} handshake packets, but then none for {} s", silent.as_secs())?,
        }
        write!(f, " (sent: ")?;
        if paths.ud || ud_sent > 0 {
            write!(f, "{ud_sent} datagrams to queue pair {:#x} at {remote}, ", remote.ud_qpn)?;
        }
        if paths.tcp || tcp_sent > 0 {
            let addresses =
                remote.ip_addresses().map(|address| SocketAddr::new(address.to_canonical(), remote.tcp_port));
            let addresses: Vec<String> = addresses.map(|address| address.to_string()).collect();
            write!(f, "{tcp_sent} packets over TCP to {}, {}", addresses.join(" or "), reach_text(reach))?;
        } else {
            write!(f, "none over TCP, which it does not offer or btl_ibex_connect_via does not permit")?;
        }
        write!(f, "). ")?;
        match reach {
            Reach::Refused => write!(f, "Its process has probably ended: look for its last words.")?,
            _ => write!(
                f,
                "Look whether its process and host live and whether the network lets packets through. If the two ports are on \
                 different networks, name those of one with btl_ibex_if_include."
            )?,
        }
        write!(f, " If it computes for long without calling MPI, set btl_ibex_connect_timeout above that time.")
    }
}

fn present(number: u32) -> String {
    if number == 0 { "none".to_owned() } else { format!("{number:#x}") }
}

fn reach_text(reach: Reach) -> &'static str {
    match reach {
        Reach::Unused => "not yet tried",
        Reach::Trying => "not connected yet",
        Reach::Open => "connected",
        Reach::Refused => "refused or reset",
        Reach::Unreachable => "which cannot be reached",
    }
}
