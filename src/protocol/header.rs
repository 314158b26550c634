// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each kind of message begins with. Fixed sizes, little-endian; what is too short is none.
//!
//! Hot: plain values. Tests: at the end of the file.

use super::transfers::TransferId;

/// What a message is matched by, before the bytes of an eager one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatchHeader {
    /// The communicator.
    pub context: u32,
    /// The sender's rank in it.
    pub source: u32,
    /// The tag; negative ones are a library's own.
    pub tag: i32,
}

/// A message whose sender waits for an answer, before the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SynchronousHeader {
    /// What it is matched by.
    pub matched_by: MatchHeader,
    /// The sender's name of it.
    pub sender: TransferId,
}

/// A message that is announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnnouncedHeader {
    /// What it is matched by.
    pub matched_by: MatchHeader,
    /// The sender's name of it.
    pub sender: TransferId,
    /// How long it is, bytes.
    pub length: u64,
    /// Where it can be read.
    pub place: Option<Place>,
}

/// Registered memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Where it starts.
    pub addr: u64,
    /// The key for other processes.
    pub rkey: u32,
}

/// A receiver asks for copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedHeader {
    /// The sender's name of the message.
    pub sender: TransferId,
    /// The receiver's.
    pub receiver: TransferId,
    /// How many bytes it wants, from the first on.
    pub bytes: u64,
}

const PLACE_IS_KNOWN: u32 = 1;

/// The `N` bytes at `at`.
#[inline]
fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

#[inline]
fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(part(bytes, at))
}

#[inline]
fn short(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(part(bytes, at))
}

impl MatchHeader {
    /// Its length on the wire, bytes.
    pub const LENGTH: usize = 12;

    /// As it is sent.
    #[must_use]
    #[inline]
    pub fn encode(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..4].copy_from_slice(&self.context.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.source.to_le_bytes());
        bytes[8..].copy_from_slice(&self.tag.to_le_bytes());
        bytes
    }

    /// As it was sent.
    #[must_use]
    #[inline]
    pub fn decode(bytes: &[u8; Self::LENGTH]) -> Self {
        MatchHeader { context: short(bytes, 0), source: short(bytes, 4), tag: short(bytes, 8) as i32 }
    }
}

impl SynchronousHeader {
    /// Its length on the wire, bytes.
    pub const LENGTH: usize = 20;

    /// As it is sent.
    #[must_use]
    pub fn encode(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..12].copy_from_slice(&self.matched_by.encode());
        bytes[12..].copy_from_slice(&self.sender.0.to_le_bytes());
        bytes
    }

    /// As it was sent.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::LENGTH]) -> Self {
        SynchronousHeader { matched_by: MatchHeader::decode(&part(bytes, 0)), sender: TransferId(number(bytes, 12)) }
    }
}

impl AnnouncedHeader {
    /// Its length on the wire, bytes.
    pub const LENGTH: usize = 44;

    /// As it is sent.
    #[must_use]
    pub fn encode(self) -> [u8; Self::LENGTH] {
        let place = self.place.unwrap_or(Place { addr: 0, rkey: 0 });
        let flags = if self.place.is_some() { PLACE_IS_KNOWN } else { 0 };
        let mut bytes = [0; Self::LENGTH];
        bytes[..12].copy_from_slice(&self.matched_by.encode());
        bytes[12..16].copy_from_slice(&flags.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sender.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.length.to_le_bytes());
        bytes[32..40].copy_from_slice(&place.addr.to_le_bytes());
        bytes[40..].copy_from_slice(&place.rkey.to_le_bytes());
        bytes
    }

    /// As it was sent.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::LENGTH]) -> Self {
        let is_known = short(bytes, 12) & PLACE_IS_KNOWN != 0;
        AnnouncedHeader {
            matched_by: MatchHeader::decode(&part(bytes, 0)),
            sender: TransferId(number(bytes, 16)),
            length: number(bytes, 24),
            place: is_known.then(|| Place { addr: number(bytes, 32), rkey: short(bytes, 40) }),
        }
    }
}

impl WantedHeader {
    /// Its length on the wire, bytes.
    pub const LENGTH: usize = 24;

    /// As it is sent.
    #[must_use]
    pub fn encode(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..8].copy_from_slice(&self.sender.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.receiver.0.to_le_bytes());
        bytes[16..].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    /// As it was sent.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::LENGTH]) -> Self {
        WantedHeader {
            sender: TransferId(number(bytes, 0)),
            receiver: TransferId(number(bytes, 8)),
            bytes: number(bytes, 16),
        }
    }
}

impl TransferId {
    /// Its length on the wire, bytes: all there is before the bytes of a piece, and all that says that a message is finished.
    pub const LENGTH: usize = 8;

    /// As it is sent.
    #[must_use]
    pub fn encode(self) -> [u8; Self::LENGTH] {
        self.0.to_le_bytes()
    }

    /// As it was sent.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::LENGTH]) -> Self {
        TransferId(u64::from_le_bytes(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MATCHED_BY: MatchHeader = MatchHeader { context: 70_000, source: 1 << 20, tag: i32::MIN + 1 };

    #[test]
    fn what_is_sent_is_what_was_said() {
        assert_eq!(MatchHeader::decode(&MATCHED_BY.encode()), MATCHED_BY);
        let synchronous = SynchronousHeader { matched_by: MATCHED_BY, sender: TransferId(u64::MAX - 1) };
        assert_eq!(SynchronousHeader::decode(&synchronous.encode()), synchronous);
        let place = Some(Place { addr: u64::MAX, rkey: u32::MAX });
        for place in [None, place] {
            let header = AnnouncedHeader { matched_by: MATCHED_BY, sender: TransferId(1), length: 1 << 40, place };
            assert_eq!(AnnouncedHeader::decode(&header.encode()), header);
        }
        let wanted = WantedHeader { sender: TransferId(1), receiver: TransferId(2), bytes: 1 << 33 };
        assert_eq!(WantedHeader::decode(&wanted.encode()), wanted);
        assert_eq!(TransferId::decode(&TransferId(9).encode()), TransferId(9));
    }

    #[test]
    fn numbers_are_little_endian() {
        assert_eq!(
            MatchHeader { context: 1, source: 2, tag: -2 }.encode(),
            [1, 0, 0, 0, 2, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff]
        );
    }
}
