// SPDX-License-Identifier: MIT OR Apache-2.0
//! MPI's envelopes ([`Envelope`]): 64 bits, source in the high half and tag in the low one. The mask of `ANY_TAG`
//! includes the tag's sign bit, and so excludes negative tags. Made by the caller of [`super::Matching`]. Grade: hot.
//! Threads: plain data. Tests: below.

use super::pattern::{MatchBits, Pattern};
use std::hint::cold_path;

/// The source of a receive from any rank: MPI's `MPI_ANY_SOURCE`.
pub const ANY_SOURCE: i32 = -1;

/// The tag of a receive for any tag of at least 0: MPI's `MPI_ANY_TAG`. No message has this tag.
pub const ANY_TAG: i32 = -1;

const TAG: u64 = 0xffff_ffff;
const SOURCE: u64 = !TAG;
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
}

impl MatchBits for Envelope {
    const NO_BITS: Self = Envelope { key: 0 };

    #[inline]
    fn under(self, mask: Self) -> Self {
        Envelope { key: self.key & mask.key }
    }

    #[inline]
    fn fold(self) -> u64 {
        self.key
    }

    /// Negative tags have a list of their own: `ANY_TAG` takes none.
    #[inline]
    fn side(self) -> usize {
        ((self.key & SIGN) >> 31) as usize
    }
}

impl std::fmt::Debug for Envelope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Envelope").field("source", &self.source()).field("tag", &self.tag()).finish()
    }
}

impl Pattern<Envelope> {
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
        let mask = source_mask | tag_mask;
        Pattern { key: Envelope { key: key(source, tag) & mask }, mask: Envelope { key: mask } }
    }

    /// Takes messages of exactly this source and tag.
    #[inline]
    pub const fn exact(envelope: Envelope) -> Self {
        Pattern { key: envelope, mask: Envelope { key: !0 } }
    }
}

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
}
