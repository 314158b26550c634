// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a peer is reached: by which port of this process, and how that names it; or by shared memory.
//!
//! The messages to a peer go by one path, so that they come in order without being numbered: shared memory, or a port; of several
//! `rails` says which. Grade: hot.
//! Plain data.

use engine::transport::EndpointId;

/// The way to a peer: its endpoint, and in the upper half which rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link(u64);

/// The mark of a link that is one of several.
const OF_SEVERAL: u64 = 1 << 63;

/// Bits of a rail's place in the upper half.
const RAIL: u64 = 0xff;

impl Link {
    /// Not found out yet.
    pub(crate) const UNKNOWN: Link = Link(u64::MAX);

    /// What stands in place of a rail where shared memory is the way.
    const SHARED_MEMORY: usize = 0xfe;

    /// By shared memory, to the peer with this place among the processes of the host.
    pub(crate) const fn local(place: u32) -> Self {
        Link((Self::SHARED_MEMORY as u64) << 32 | place as u64)
    }

    /// The peer's place among the processes of the host, where shared memory is the way.
    #[inline]
    pub(crate) const fn as_local(self) -> Option<u32> {
        if self.rail() == Self::SHARED_MEMORY { Some(self.0 as u32) } else { None }
    }

    pub(crate) const fn new(rail: usize, to: EndpointId) -> Self {
        Link((rail as u64) << 32 | to.index() as u64)
    }

    /// Which of the process' rails.
    #[inline]
    pub(crate) const fn rail(self) -> usize {
        (self.0 >> 32 & RAIL) as usize
    }

    /// Whether it is by the first rail, and that the only one.
    #[inline]
    pub(crate) const fn is_of_only(self) -> bool {
        self.0 >> 32 == 0
    }

    /// The same, marked as being one of several to its peer.
    pub(crate) const fn of_several(self) -> Self {
        Link(self.0 | OF_SEVERAL)
    }

    /// Whether it is marked so.
    pub(crate) const fn is_of_several(self) -> bool {
        self.0 & OF_SEVERAL != 0 && self.0 != Self::UNKNOWN.0
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
