// SPDX-License-Identifier: MIT OR Apache-2.0
//! A receiver that reads a message from its sender's memory: which reads it posts, and when it has all bytes.
//!
//! The caller posts each read that [`Reading::next_part`] names, and reports its completion. Called by
//! `pml/reading.rs`. Pending grade. Threads: the owner's. Tests: at the end of the file.

/// A message that is being read.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    length: u64,
    /// Bytes whose reads have begun, and bytes whose reads have completed; reads complete in order.
    begun: u64,
    read: u64,
    /// Bytes of the longest read.
    piece: u64,
    /// Number of reads in flight, and the most that may be.
    under_way: u32,
    most: u32,
}

/// A contiguous part of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Offset of its first byte in the message.
    pub offset: u64,
    /// Number of bytes.
    pub length: u32,
}

impl Reading {
    /// Starts to read `length` bytes with reads of at most `piece` bytes, at most `most` in flight; all at least 1.
    #[must_use]
    pub fn new(length: u64, piece: u32, most: u32) -> Self {
        Reading { length, begun: 0, read: 0, piece: u64::from(piece), under_way: 0, most }
    }

    /// Bytes of the message.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns the next read to post; `None` if none may be posted now.
    pub fn next_part(&mut self) -> Option<Part> {
        let length = (self.length - self.begun).min(self.piece);
        if length == 0 || self.under_way >= self.most {
            return None;
        }
        let part = Part { offset: self.begun, length: length as u32 };
        self.begun += length;
        self.under_way += 1;
        Some(part)
    }

    /// Counts the oldest read as completed, and returns it.
    pub fn done(&mut self) -> Part {
        let part = Part { offset: self.read, length: (self.length - self.read).min(self.piece) as u32 };
        self.read += u64::from(part.length);
        self.under_way -= 1;
        part
    }

    /// Whether all has been read.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.read == self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_cover_the_message_once_and_no_more_than_permitted_are_under_way() {
        for (length, piece, most) in [(1, 1, 1), (10, 3, 2), (9, 3, 4), ((1 << 32) + 5, 1 << 30, 3), (5, u32::MAX, 1)] {
            let (mut reading, mut covered, mut read, mut under_way) = (Reading::new(length, piece, most), 0, 0, 0);
            loop {
                while let Some(part) = reading.next_part() {
                    assert_eq!(part.offset, covered);
                    assert!(part.length <= piece && part.length > 0);
                    covered += u64::from(part.length);
                    under_way += 1;
                }
                assert!(under_way > 0 && under_way <= most);
                under_way -= 1;
                let part = reading.done();
                assert_eq!(part.offset, read);
                read += u64::from(part.length);
                assert_eq!(reading.is_done(), read == length);
                if reading.is_done() {
                    break;
                }
            }
            assert_eq!((covered, under_way), (length, 0));
        }
    }
}
