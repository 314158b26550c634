// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a connection failed, as a message that names the culprit and says what to do. Made once per failed connection,
//! by `port/fail.rs`; shown by the plugin. Grade: setup. Tests: below.

use super::retransmission::Retransmission;
use crate::peer::PeerName;
use crate::transport::tx::send_queue::{ATTEMPTS, LEAST_TIME};
use ibex_ffi::verbs::{PostError, Status};
use std::fmt;

/// The first thing that went wrong on a connection.
#[derive(Debug, Clone)]
pub enum Cause {
    /// The adapter completed a request with an error.
    Completion {
        /// The adapter's status.
        status: Status,
        /// The vendor's own code.
        vendor: u32,
    },
    /// The adapter refused a request.
    Post {
        /// The errno.
        errno: i32,
    },
    /// The peer had given the connection up, and has not acknowledged all requests.
    GivenUp,
    /// The connection could not be made.
    Connect {
        /// The reason and advice, a sentence.
        why: String,
        /// The errno that fits best.
        errno: i32,
    },
    /// The peer breaks the rules of the protocol; the sentence says how.
    Protocol(String),
    /// The port can no longer be used; the sentence gives the reason.
    Port(String),
}

/// A failed connection: its peer, its ports, its cause.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The peer.
    pub peer: PeerName,
    /// Its host, as Open MPI names it.
    pub host: String,
    /// This side's device and port, for example `rxe0:1`.
    pub port: String,
    /// The peer's port, for example `port 0 (LID 7)`; only its number if it published no address.
    pub remote_port: String,
    /// This side's queue pair.
    pub qp_num: u32,
    /// Cause of the failure.
    pub cause: Cause,
    /// The adapter's time-out and number of retries.
    pub retransmission: Retransmission,
}

impl Failure {
    /// Returns the errno that fits best.
    pub fn errno(&self) -> i32 {
        match self.cause {
            Cause::Completion { status: Status::RETRY_EXCEEDED | Status::RNR_RETRY_EXCEEDED, .. } => libc::ETIMEDOUT,
            Cause::Connect { errno, .. } => errno,
            Cause::Completion { .. } | Cause::Post { .. } | Cause::GivenUp | Cause::Protocol(_) | Cause::Port(_) => {
                libc::EIO
            }
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { peer, host, port, remote_port, qp_num, cause, retransmission } = self;
        write!(
            f,
            "the connection to rank {} ({peer}) on host {host} through {port} to its {remote_port}, queue pair 0x{qp_num:06x}, ",
            peer.rank
        )?;
        match cause {
            Cause::Completion { status, vendor } => {
                write!(f, "failed with status {status}, vendor error 0x{vendor:x}: {}", status.advice())?;
                if *status == Status::RETRY_EXCEEDED {
                    write!(
                        f,
                        " (the adapter waited {retransmission} for an acknowledgement, or up to four times as long; \
                         btl_ibex_ack_timeout and btl_ibex_link_outage set that); if the two ports are on \
                         different networks, name those of one with btl_ibex_if_include"
                    )?;
                }
                Ok(())
            }
            Cause::Post { errno } if PostError(*errno).is_full() => {
                let error = std::io::Error::from_raw_os_error(*errno);
                write!(
                    f,
                    "failed: the adapter reports that its send queue is full ({error}), {ATTEMPTS} times and for {} s in which no \
                     request was under way; see the kernel's log for the device and for a lack of memory",
                    LEAST_TIME.as_secs()
                )
            }
            Cause::Post { errno } => {
                let error = std::io::Error::from_raw_os_error(*errno);
                write!(f, "failed: the adapter refused a request: {error}; see the kernel's log for the device")
            }
            Cause::GivenUp => write!(
                f,
                "failed: the peer had given it up, because this process did not answer for long, and requests to it are lost; \
                 see the link and the other host"
            ),
            Cause::Protocol(why) => write!(f, "was given up: {why}"),
            Cause::Connect { why, .. } => write!(f, "could not be made: {why}"),
            Cause::Port(why) => write!(f, "was lost with its port: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed_by(cause: Cause) -> String {
        let failure = Failure {
            peer: PeerName { job: 1, rank: 3 },
            host: "n2".into(),
            port: "mlx5_0:1".into(),
            remote_port: "port 2 (LID 9)".into(),
            qp_num: 0x1a2b,
            cause,
            retransmission: Retransmission { exponent: 16, retries: 7 },
        };
        failure.to_string()
    }

    #[test]
    fn a_failure_names_peer_host_device_queue_pair_status_tries_and_time_out() {
        let text = failed_by(Cause::Completion { status: Status::RETRY_EXCEEDED, vendor: 0x81 });
        let parts = [
            "rank 3",
            "n2",
            "mlx5_0:1",
            "its port 2 (LID 9)",
            "btl_ibex_if_include",
            "0x001a2b",
            "RETRY_EXC_ERR (12)",
            "0x81",
            "8 times 268.435ms (2^16 * 4.096 us)",
        ];
        for part in parts {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }

    #[test]
    fn a_refused_request_distinguishes_a_full_queue_from_other_errors() {
        let full = failed_by(Cause::Post { errno: libc::ENOMEM });
        assert!(full.contains("its send queue is full") && full.contains("1000 times"), "{full}");
        let invalid = failed_by(Cause::Post { errno: libc::EINVAL });
        assert!(invalid.contains("failed: the adapter refused a request: Invalid argument"), "{invalid}");
    }
}
