// SPDX-License-Identifier: MIT OR Apache-2.0
//! The envelope of a message ([`Envelope`]), and which envelopes a receive takes ([`Pattern`]). Both are a 64-bit key,
//! source in the high half and tag in the low one. A pattern also has a mask: it takes a message if the keys are equal
//! under the mask. The mask of `ANY_TAG` includes the tag's sign bit, and so excludes negative tags. Made by the caller
//! of [`super::Matching`]. Hot: plain values. Tests: below.

use std::hint::cold_path;

/// The source of a receive from any rank: MPI's `MPI_ANY_SOURCE`.
pub const ANY_SOURCE: i32 = -1;

/// The tag of a receive for any tag of at least 0: MPI's `MPI_ANY_TAG`. No message has this tag.
pub const ANY_TAG: i32 = -1;

pub(super) const TAG: u64 = 0xffff_ffff;
pub(super) const SOURCE: u64 = !TAG;
pub(super) const EXACT: u64 = !0;
const SIGN: u64 = 0x8000_0000;

#[inline]
const fn key(source: i32, tag: i32) -> u64 {
    (source as u32 as u64) << 32 | tag as u32 as u64
}

/// Sender and tag of a message. Negative tags are the MPI library's own; a receive takes one only if it names it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    key: u64,
}

impl Envelope {
    /// Makes the envelope of a message from the rank `source`, at least 0, with this tag.
    #[inline]
    pub const fn new(source: i32, tag: i32) -> Self {
        Envelope { key: key(source, tag) }
    }

    /// The rank of the sender.
    #[inline]
    pub const fn source(self) -> i32 {
        (self.key >> 32) as i32
    }

    /// The tag.
    #[inline]
    pub const fn tag(self) -> i32 {
        self.key as i32
    }

    #[inline]
    pub(super) const fn from_key(key: u64) -> Self {
        Envelope { key }
    }

    #[inline]
    pub(super) const fn key(self) -> u64 {
        self.key
    }
}

impl std::fmt::Debug for Envelope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Envelope").field("source", &self.source()).field("tag", &self.tag()).finish()
    }
}

/// The side of a queue that a key is on: 0, or 1 for negative tags. No pattern takes messages of both sides.
#[inline]
pub(super) const fn side(key: u64) -> usize {
    ((key & SIGN) >> 31) as usize
}

/// Which messages a receive or a probe takes: by source and tag, or with wildcards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    key: u64,
    mask: u64,
}

impl Pattern {
    /// Takes messages from `source`, or [`ANY_SOURCE`], with `tag`, or [`ANY_TAG`].
    #[inline(always)]
    pub const fn new(source: i32, tag: i32) -> Self {
        // Without wildcards there are no masks to compute. One joint condition costs two more instructions.
        if source < 0 {
            cold_path();
            return Pattern::with_wildcards(source, tag);
        }
        if tag == ANY_TAG {
            cold_path();
            return Pattern::with_wildcards(source, tag);
        }
        Pattern::exact(Envelope::new(source, tag))
    }

    #[inline(never)]
    const fn with_wildcards(source: i32, tag: i32) -> Self {
        let source_mask = if source == ANY_SOURCE { 0 } else { SOURCE };
        let tag_mask = if tag == ANY_TAG { SIGN } else { TAG };
        // `ANY_TAG` compares only the sign bit, which is 0 in the tags that it takes.
        let tag = if tag == ANY_TAG { 0 } else { tag };
        Pattern { key: key(source, tag) & (source_mask | TAG), mask: source_mask | tag_mask }
    }

    /// Takes messages of exactly this source and tag.
    #[inline]
    pub const fn exact(envelope: Envelope) -> Self {
        Pattern { key: envelope.key, mask: EXACT }
    }

    /// Whether the pattern takes the message.
    #[inline]
    pub const fn takes(self, envelope: Envelope) -> bool {
        (self.key ^ envelope.key) & self.mask == 0
    }

    #[inline]
    pub(super) const fn key(self) -> u64 {
        self.key
    }

    #[inline]
    pub(super) const fn mask(self) -> u64 {
        self.mask
    }
}

/// Indexes of the four classes of patterns, by their wildcards.
pub(super) mod class {
    pub(in super::super) const EXACT: usize = 0;
    pub(in super::super) const ANY_SOURCE: usize = 1;
    pub(in super::super) const ANY_TAG: usize = 2;
    pub(in super::super) const ANY: usize = 3;
}

#[inline]
pub(super) const fn class_of(mask: u64) -> usize {
    (mask & SOURCE == 0) as usize | ((mask & TAG != TAG) as usize) << 1
}

/// Bits of its key that a pattern of each class specifies.
pub(super) const SPECIFIED: [u64; 4] = [EXACT, TAG, SOURCE, 0];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_takes_the_messages_that_it_names_and_any_tag_takes_no_negative_one() {
        for source in [0, 1, i32::MAX] {
            for tag in [0, 7, i32::MAX, -2, -1_073_741_822, i32::MIN] {
                let envelope = Envelope::new(source, tag);
                assert_eq!((envelope.source(), envelope.tag()), (source, tag));
                assert!(Pattern::new(source, tag).takes(envelope));
                assert_eq!(Pattern::exact(envelope), Pattern::new(source, tag));
                assert!(Pattern::new(ANY_SOURCE, tag).takes(envelope));
                assert_eq!(Pattern::new(source, ANY_TAG).takes(envelope), tag >= 0);
                assert_eq!(Pattern::new(ANY_SOURCE, ANY_TAG).takes(envelope), tag >= 0);
                assert!(!Pattern::new(source ^ 1, tag).takes(envelope));
                assert!(!Pattern::new(source ^ 1, ANY_TAG).takes(envelope));
                assert!(!Pattern::new(source, tag ^ 1).takes(envelope));
                assert!(!Pattern::new(ANY_SOURCE, tag ^ 1).takes(envelope));
            }
        }
    }

    #[test]
    fn the_class_of_a_pattern_follows_from_its_wildcards() {
        let class = |source, tag| class_of(Pattern::new(source, tag).mask());
        assert_eq!([class(0, 0), class(0, -2)], [class::EXACT; 2]);
        assert_eq!([class(ANY_SOURCE, 0), class(ANY_SOURCE, -2)], [class::ANY_SOURCE; 2]);
        assert_eq!([class(0, ANY_TAG), class(ANY_SOURCE, ANY_TAG)], [class::ANY_TAG, class::ANY]);
    }
}
