// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the messenger must know of an envelope beyond its matching ([`WireEnvelope`]): how requests name it, and which
//! bytes carry it. `mpi.rs` has MPI's, `libfabric.rs` that of libfabric. A host chooses its envelope
//! ([`Types::Envelope`]), and the compiler makes one copy of the messenger for each.
//!
//! Called by the header, by `receive` and by the protocols. Grade: hot for [`WireEnvelope::from_eager`] and
//! [`WireEnvelope::sent_by`]. Threads: plain data. Tests: `header/tests.rs`.
//!
//! [`Types::Envelope`]: crate::messenger::host::Types::Envelope

use std::fmt::Debug;

use super::{Bytes, Reader};
use crate::messenger::matching::{Envelope, MatchBits, Pattern};
use crate::messenger::route::Route;

/// The context number and the envelope by which a message is matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Match<E = Envelope> {
    /// Context number of the communicator: below 2^24.
    pub context: u32,
    /// Sender and tag.
    pub envelope: E,
}

/// An envelope that messages carry.
pub trait WireEnvelope: MatchBits + Debug {
    /// Names a process in a communicator, or any.
    type Peer: Copy + PartialEq + Debug;
    /// What a request says of its message beside the peer: the tag, or any.
    type Tag: Copy + PartialEq + Debug;

    /// The flags in the first byte of headers with this envelope.
    const FLAGS: u8;

    /// Makes the envelope of a message from `source`, which a request with this tag sends.
    fn new(source: Self::Peer, tag: Self::Tag) -> Self;

    /// The sender.
    fn source(self) -> Self::Peer;

    /// The tag, as a request names it.
    fn tag(self) -> Self::Tag;

    /// Returns which messages a receive, or a probe, with this source and tag takes.
    fn pattern(source: Self::Peer, tag: Self::Tag) -> Pattern<Self>;

    /// Whether messages with this tag are the MPI library's own: flow control does not let them wait.
    fn is_of_library(tag: Self::Tag) -> bool;

    /// Completes the envelope of a message that has arrived, if its header does not name the sender. `sender` returns
    /// the route that names the sender's account in flow control. `None`: the sender is not known, but must be.
    fn sent_by(self, sender: impl FnOnce() -> Option<Route>) -> Option<Self>;

    /// Returns source, or peer, and tag as events show them.
    fn shown(peer: Self::Peer, tag: Self::Tag) -> (i32, i32);

    /// Reads the header of an eager message. Returns it with the data behind it; `None` if the message is of another
    /// kind, or damaged. Hot.
    fn from_eager(message: &[u8]) -> Option<(Match<Self>, &[u8])>;

    /// Writes the part of a message's header that is to be matched.
    ///
    /// # Panics
    /// A value is out of its range.
    fn write(of: Match<Self>, kind: u8, bytes: &mut Bytes);

    /// Reads the bytes of [`Self::write`]. `kind` and `flags` are those of the first byte.
    fn read(from: &mut Reader<'_>, kind: u8, flags: u8) -> Option<Match<Self>>;
}
