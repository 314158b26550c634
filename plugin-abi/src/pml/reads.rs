// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of a long message that several ports read.
//!
//! In the request (`request`). Made and used by `announcing` on the sender's side, by `striped` on the receiver's.
//! Plain data.

use engine::protocol::striping::Striping;
use engine::protocol::transfers::TransferId;

use super::link::Link;
use super::watched_reads::WatchedReads;
use crate::runtime::memory::Registered;

/// The shortest message that is read by several ports, bytes: two reads of the least length.
pub(crate) const SHORTEST: usize = 64 << 10;

/// What a port's registration is of: which rail's, and the registration.
pub(crate) type OfRail = (usize, Registered);

/// A message that is being read by several ports.
pub(crate) struct Reads {
    pub(crate) state: Striping,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) sender: TransferId,
    /// By which the message was announced.
    pub(crate) from: Link,
    /// Where the data begins.
    pub(crate) address: u64,
    pub(crate) watched: Option<Box<WatchedReads>>,
}

/// A port that reads.
pub(crate) struct Lane {
    pub(crate) link: Link,
    /// The sender's key of its memory.
    pub(crate) key: u32,
    pub(crate) registered: Registered,
}
