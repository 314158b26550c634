// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which messages a receive takes ([`Pattern`]), for every kind of envelope ([`MatchBits`]): MPI's (`envelope.rs`) and
//! libfabric's (`tagged.rs`). A pattern has bits and a mask; it takes a message if both have equal bits under the mask.
//! The queues of this folder are generic over the kind and know nothing else of it, so the compiler makes one copy for
//! each. Made by the caller of [`super::Matching`]. Grade: hot. Threads: plain data. Tests: with the kinds.

/// The bits of an envelope that decide which receive takes the message, or a mask of them.
pub trait MatchBits: Copy + Eq {
    /// The mask that compares nothing.
    const NO_BITS: Self;

    /// The bits that the mask compares; the others are 0.
    #[must_use]
    fn under(self, mask: Self) -> Self;

    /// 64 bits for hash tables, which differ for different envelopes, or nearly always.
    fn fold(self) -> u64;

    /// The list of a queue that has the envelope: 0 or 1. No pattern takes messages of both.
    fn side(self) -> usize;
}

/// Which messages a receive or a probe takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern<E = super::Envelope> {
    /// Under the mask.
    pub(super) key: E,
    pub(super) mask: E,
}

impl<E: MatchBits> Pattern<E> {
    /// Takes all messages.
    pub(in crate::messenger) const ALL: Self = Pattern { key: E::NO_BITS, mask: E::NO_BITS };

    /// Whether the pattern takes the message.
    #[inline]
    pub fn takes(self, envelope: E) -> bool {
        // The mask on both sides: for MPI the compiler makes one xor and one test of it.
        envelope.under(self.mask) == self.key.under(self.mask)
    }
}
