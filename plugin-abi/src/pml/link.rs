// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a peer is reached: by which port of this process, and how that names it; or by shared memory; or as oneself.
//!
//! The messages to a peer go by one path, so that they come in order without being numbered: shared memory, or a port;
//! of several `rails` says which.
//!
//! In a communicator a link may have marks: that it is one of several ([`Link::of_several`]), that short messages may
//! not take it for now ([`Link::marked`]). Each has a bit of its own, so that both can stand there; no link that is
//! known has all bits set, which is [`Link::UNKNOWN`]. A mark changes what the short paths compare, so that none of
//! them is taken and none needs to ask. Grade: hot. Plain data. Tests: below.

use engine::transport::EndpointId;

/// The way to a peer: its endpoint, and in the upper half which rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Link(u64);

/// What flow control knows a peer by: the link to it that stays the same, whichever its messages go by
/// (`rails::account`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Account(pub(crate) Link);

/// The mark of a link that is one of several.
const OF_SEVERAL: u64 = 1 << 63;

/// The mark of a link that short messages may not take for now (`flow`).
const HELD_BACK: u64 = 1 << 62;

/// Bits of a rail's place in the upper half.
const RAIL: u64 = 0xff;

impl Link {
    /// Not found out yet.
    pub(crate) const UNKNOWN: Link = Link(u64::MAX);

    /// To this process, which no rail takes.
    pub(crate) const ONESELF: Link = Link(0xfd << 32);

    /// What stands in place of a rail where shared memory is the way.
    const SHARED_MEMORY: usize = 0xfe;

    /// By shared memory, to the peer with this place among the processes of the host.
    pub(crate) const fn local(place: u32) -> Self {
        Link((Self::SHARED_MEMORY as u64) << 32 | place as u64)
    }

    /// The peer's place among the processes of the host, where shared memory is the way. `None` of a link that is
    /// marked.
    #[inline]
    pub(crate) const fn as_local(self) -> Option<u32> {
        if self.0 >> 32 == Self::SHARED_MEMORY as u64 { Some(self.0 as u32) } else { None }
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

    /// Whether it is marked so, and not held back.
    pub(crate) const fn is_of_several(self) -> bool {
        self.0 & (OF_SEVERAL | HELD_BACK) == OF_SEVERAL
    }

    /// What stands in a communicator in its place while short messages may not take it.
    pub(crate) const fn marked(self) -> Self {
        Link(self.0 | HELD_BACK)
    }

    /// Without the mark of [`Self::marked`], of one that is known.
    #[inline]
    pub(crate) const fn unmarked(self) -> Self {
        Link(self.0 & !HELD_BACK)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_marks_share_a_bit_and_no_marked_link_takes_a_short_path() {
        let by_port = Link::new(0, EndpointId::from_index(7));
        let links = [
            by_port,
            by_port.of_several(),
            Link::local(7),
            Link::ONESELF,
            Link::new(0xfc, EndpointId::from_index(u32::MAX)),
        ];
        for link in links {
            let marked = link.marked();
            assert_eq!(marked.unmarked(), link);
            assert_eq!(marked.of_several().unmarked(), link.of_several());
            assert_eq!((marked.rail(), marked.to()), (link.rail(), link.to()));
            for known in [link, marked, marked.of_several()] {
                assert_ne!(known, Link::UNKNOWN);
            }
            assert!(!marked.is_of_only() && !marked.is_of_several() && marked.as_local().is_none());
        }
        assert!(by_port.is_of_only() && by_port.of_several().is_of_several() && Link::local(7).as_local() == Some(7));
        assert!(!Link::UNKNOWN.is_of_only() && !Link::UNKNOWN.is_of_several() && Link::UNKNOWN.as_local().is_none());
    }
}
