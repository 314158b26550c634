// SPDX-License-Identifier: MIT OR Apache-2.0
//! The flight recorder: what a process did last, of the rarer kinds, and what it has counted, in a file in shared memory.
//!
//! A process has one file ([`begin`]) from the opening of its ports to their closing ([`end`]). Sites write an entry
//! each ([`record`]); the ports' counts and their peers are copied from time to time ([`show`], [`show_peer`]). Where something fails the file is to
//! stay ([`keep`]), and so it does where the process dies. [`Flight`] reads one, of a process that lives or not;
//! [`leftovers`] finds them, and removes the oldest of those that nobody needs.
//!
//! What a file consists of is in `layout.rs`, which entries there are in `entry.rs`. It is always on, so a site is only
//! where something happens that is rare, or takes long anyway. Path: cold. Threads: any, without a lock.
//! Tests: `tests.rs`.

mod counts;
mod entry;
mod layout;
pub mod leftovers;
mod peers;
mod read;
mod recorder;
#[cfg(test)]
mod tests;
mod words;

pub use counts::{EVENTS, show};
pub use entry::{Entry, Kind, NO_PORT, NOBODY};
pub use peers::{PeerFlight, PeerState, show_peer};
pub use read::{Flight, FlightError, PortFlight};
pub use recorder::{Process, begin, end, keep, name_port, record};
