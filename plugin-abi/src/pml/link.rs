// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a peer is reached: by which port of this process, and how that names it.
//!
//! One path for each peer, the first port that reaches it: so its messages come in order without being numbered. Grade: hot.
//! Plain data.

use engine::transport::EndpointId;

/// The way to a peer: its endpoint, and in the upper half which rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Link(u64);

/// Of a link in a communicator that short messages may not take for now (`flow`): no rail has such a number.
const MARK: u64 = 1 << 63;

impl Link {
    /// Not found out yet.
    pub(crate) const UNKNOWN: Link = Link(u64::MAX);

    pub(crate) const fn new(rail: usize, to: EndpointId) -> Self {
        Link((rail as u64) << 32 | to.index() as u64)
    }

    /// What stands in a communicator in its place while short messages may not take it.
    pub(crate) const fn marked(self) -> Self {
        Link(self.0 | MARK)
    }

    /// The link itself, of one that is known and perhaps marked.
    #[inline]
    pub(crate) const fn unmarked(self) -> Self {
        Link(self.0 & !MARK)
    }

    /// Which of the process' rails.
    #[inline]
    pub(crate) const fn rail(self) -> usize {
        (self.0 >> 32) as usize
    }

    /// The peer, as the rail's port names it.
    #[inline]
    pub(crate) const fn to(self) -> EndpointId {
        EndpointId::from_index(self.0 as u32)
    }

    /// As a number, to be kept in an atomic.
    #[inline]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Link(bits)
    }
}
