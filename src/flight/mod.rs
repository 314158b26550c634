// SPDX-License-Identifier: MIT OR Apache-2.0
//! The flight recorder: a process's last rare events and its counts, in a file in shared memory.
//!
//! A process has one file ([`begin`]) from the opening of its ports to their closing ([`end`]). Code where a rare event
//! happens writes an entry ([`record`]); a port copies its counts and the state of its peers from time to time
//! ([`show`], [`show_peer`]). The file stays after a failure ([`keep`]), and if the process dies. [`Flight`] reads a
//! file; [`leftovers`] finds files, and removes the oldest unneeded ones. The recorder is always on, so only code that
//! runs rarely, or takes long anyway, writes entries. Grade: pending. Threads: any, without a lock. Tests: `tests.rs`.

mod entry;
mod layout;
pub mod leftovers;
mod peers;
mod read;
mod recorder;
#[cfg(test)]
mod tests;

pub use entry::{Entry, Kind, NO_PORT, NOBODY};
pub use peers::{PeerFlight, PeerState, show_peer};
pub use read::{Flight, FlightError, PortFlight};
pub use recorder::{EVENTS, Process, begin, end, keep, name_port, record, show};
