// SPDX-License-Identifier: MIT OR Apache-2.0
//! A handshake's instructions to the port after a hello or a time-out. `handshake` makes them,
//! `transport/port/establish.rs` executes them. For a failure the handshake gives the reason, and the port makes the
//! message, with advice. Grade: setup. Threads: the port's. Tests: `tests`.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::connect::{Paths, Reach, Via};
use crate::peer::PeerName;
use crate::select::address::PortAddress;

/// Instructions to the port. `program` comes before `send` and `confirmed`. An empty step does nothing.
#[must_use]
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Step {
    /// The handshake has ignored the hello for this reason: count it.
    pub(crate) ignored: Option<Ignored>,
    /// The peer has begun a new connection while this one is in use. Keep this one, and make a successor: a queue pair
    /// with a handshake of a new epoch, which gets this same hello. Once confirmed, the successor replaces this one.
    pub(crate) superseded: bool,
    /// Set the local queue pair to this one of the peer, ready to receive. The path is in the hello's `source.address`.
    pub(crate) program: Option<Program>,
    /// The peer can receive: set the queue pair ready to send, and send waiting requests. Comes once per handshake.
    pub(crate) confirmed: bool,
    /// Send [`Handshake::hello`](super::Handshake::hello), made after `program` was executed, by these carriers.
    pub(crate) send: Option<Via>,
    /// The connection cannot be made. Comes once; the handshake does nothing afterwards.
    pub(crate) failed: Option<Failure>,
}

/// The peer's queue pair, and the abilities of both.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct Program {
    /// Number of the peer's queue pair (`dest_qp_num`).
    pub(crate) qpn: u32,
    /// First sequence number of its sends (`rq_psn`).
    pub(crate) psn: u32,
    /// The peer's name for us, which messages to it carry.
    pub(crate) endpoint: u32,
    /// Smaller of both ports' MTUs, as verbs.h's code (`path_mtu`).
    pub(crate) mtu: u8,
    /// Reads and atomics that we may have in flight (`max_rd_atomic`): as many as we can have and the peer serves.
    pub(crate) max_rd_atomic: u8,
    /// Reads and atomics of the peer that we serve at once (`max_dest_rd_atomic`).
    pub(crate) max_dest_rd_atomic: u8,
    /// Whether to reset our queue pair first (its numbers stay): it was set to an earlier one, which the peer gave up.
    pub(crate) reset: bool,
}

/// Why a hello was ignored.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Ignored {
    /// It is for another instance of this port (or another port).
    NotForUs,
    /// It is from another instance of the peer than the one whose address we have.
    OtherInstance,
    /// It is late: it belongs to an earlier connection.
    Late,
    /// It names another queue pair for the connection that we already have; the first one counts.
    Conflict,
    /// This handshake has failed before.
    Failed,
}

/// Why a connection could not be made, and which carriers the handshake has tried.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct Failure {
    pub(crate) reason: FailureReason,
    pub(crate) paths: Paths,
    /// Number of hellos sent as datagrams.
    pub(crate) ud_sent: u32,
    /// Number of hellos sent over TCP.
    pub(crate) tcp_sent: u32,
    /// Number of hellos received from the peer.
    pub(crate) heard: u32,
    pub(crate) reach: Reach,
    /// Time since the peer was last heard.
    pub(crate) silent: Duration,
}

#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum FailureReason {
    /// The two ports have no carrier in common.
    NoCarrier,
    /// The peer sent no hello.
    Unanswered,
    /// The peer sent a hello, but went silent before it confirmed.
    Unconfirmed,
}

impl Failure {
    /// The whole message: the peer, the local port (`rxe0:1`), each carrier with its number of tries, and advice.
    pub(crate) fn message(&self, peer: PeerName, local_port: &str, remote: &PortAddress) -> String {
        format!("no connection from port {local_port} to peer {peer}: {}", fmt::from_fn(|f| self.explain(remote, f)))
    }

    /// Returns the errno that fits best.
    pub(crate) fn errno(&self) -> i32 {
        match (self.reason, self.reach) {
            (FailureReason::NoCarrier, _) | (_, Reach::Unreachable) => libc::EHOSTUNREACH,
            (_, Reach::Refused) => libc::ECONNREFUSED,
            _ => libc::ETIMEDOUT,
        }
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
            Reach::Refused => write!(f, "Its process has probably ended: see the end of its output.")?,
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
