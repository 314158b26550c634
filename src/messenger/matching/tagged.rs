// SPDX-License-Identifier: MIT OR Apache-2.0
//! libfabric's envelopes, by `fi_tagged(3)`: an address and a tag of 64 bits. A receive names a tag, the bits of it to
//! ignore, and with `FI_DIRECTED_RECV` a source. Which bits a program ignores is its own choice, but programs choose
//! few different masks: an MPI ignores its field for the tag, or the bits of its protocol. Made by the caller of
//! [`super::Matching`]. Grade: hot. Threads: plain data. Tests: below, and `tests/`.

use super::pattern::{MatchBits, Pattern};

/// The source of a receive from any address: `FI_ADDR_UNSPEC`.
pub const ADDR_UNSPEC: u64 = u64::MAX;

/// Sender and tag of a message, and what else its header carries for its receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tagged {
    /// Names the sender: a number of the caller's.
    pub source: u64,
    /// The tag.
    pub tag: u64,
    /// The message's remote CQ data. No receive compares it.
    pub data: Option<u64>,
}

/// A tag as a call of libfabric names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FiTag {
    /// The tag.
    pub tag: u64,
    /// The bits of it that a receive ignores; 0 in a send.
    pub ignore: u64,
    /// The remote CQ data of a send, or of the message that a receive has got.
    pub data: Option<u64>,
}

impl MatchBits for Tagged {
    const NO_BITS: Self = Tagged { source: 0, tag: 0, data: None };

    #[inline]
    fn under(self, mask: Self) -> Self {
        Tagged { source: self.source & mask.source, tag: self.tag & mask.tag, data: None }
    }

    #[inline]
    fn fold(self) -> u64 {
        // Sources are small numbers, and so are the fields of a tag: a plain sum would mix them up.
        self.source.wrapping_mul(0xd6e8_feb8_6659_fd93).wrapping_add(self.tag)
    }

    #[inline]
    fn side(self) -> usize {
        0
    }
}

impl Pattern<Tagged> {
    /// Takes messages from `source`, or [`ADDR_UNSPEC`], whose tags are equal to `tag` except in the bits of `ignore`.
    #[inline]
    pub const fn tagged(source: u64, tag: u64, ignore: u64) -> Self {
        let mask = Tagged { source: if source == ADDR_UNSPEC { 0 } else { u64::MAX }, tag: !ignore, data: None };
        Pattern { key: Tagged { source: source & mask.source, tag: tag & mask.tag, data: None }, mask }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receive_takes_the_tags_that_differ_only_in_ignored_bits_from_its_source_or_any() {
        for source in [0, 7, u64::MAX - 2] {
            for tag in [0, 5, 1 << 63, u64::MAX] {
                let envelope = Tagged { source, tag, data: Some(tag) };
                for from in [source, ADDR_UNSPEC] {
                    for ignore in [0, 1, 0xffff_ffff, 1 << 63, u64::MAX] {
                        assert!(Pattern::tagged(from, tag, ignore).takes(envelope));
                        assert!(Pattern::tagged(from, tag ^ ignore, ignore).takes(envelope));
                    }
                    assert!(!Pattern::tagged(from, tag ^ 1 << 63, !(1 << 63)).takes(envelope));
                    assert!(!Pattern::tagged(from, tag ^ 2, 1).takes(envelope));
                }
                assert!(!Pattern::tagged(source ^ 1, tag, u64::MAX).takes(envelope));
            }
        }
    }
}
