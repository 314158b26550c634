// SPDX-License-Identifier: MIT OR Apache-2.0
//! The headers of messages on the wire: their bytes and their checks.
//!
//! No header has the version: [`VERSION`] goes with what processes publish of themselves, and those of different
//! versions do not connect. All is little-endian. The first byte has the kind in its low half and flags in its high
//! one; who sends, as a process, is in the immediate data beside (`transport/work_request.rs`), or known by whatever
//! else carries the message.
//!
//! Kinds 1 to 4 are messages to be matched. They begin with who sends what, in 8 bytes if it fits there: the
//! rank below 2^16, the context below 2^16, the tag within 24 bits with its sign. An eager message always has the long
//! form: 4 bytes more, which go with the others, and 22 instructions less for a message sent and received, as nothing
//! is tested, shifted or masked.
//!
//! ```text
//! short, 8 bytes    byte 0: kind, flags   1-2: rank      3-4: context   5-7: tag
//! long, 12 bytes    byte 0: kind, LONG    1-3: context   4-7: rank      8-11: tag
//! then   Eager        nothing: 12 bytes in all; the data follows
//!        Synchronous  request 4: to be acknowledged when it is matched; the data follows
//!        Announce     request 4, key 4, address 8, length 8: where the data is; at address 0 it cannot be read, and the key says
//!                     why, for who tells tools
//!        AnnounceKeyed  the same; for each further port of the sender's, by which the data can be read as well, 8 bytes follow:
//!                     its number 4, its key of the data 4
//! ```
//!
//! The others are about a request of one side, by the number that this side gave it. Bytes 1 to 3 are 0.
//!
//! ```text
//! ClearToSend   request 4, receive 4, why 4, length 8               answers Announce: send so much in pieces; and why data is
//!                                                                   not read that could be, for who tells tools
//! Fragment      receive 4, offset 8; data follows                   a piece of an announced message
//! Finished      request 4, length 8                                 so much has been read or written
//! Acknowledge   request 4                                           a synchronous message was matched
//! Moved         segment 4, count 4                                  what follows by this port comes after what came by another
//! Flow          number 8, GRANTED or not                            short messages may be sent at once, or not
//! Pending       context 4                                           there are messages that have not been announced
//! More          context 4                                           asks for them
//! ```
//!
//! Each header has one form, so bytes that are not the one form of anything are refused, and bytes that are taken give
//! the same bytes again. What arrives is checked here for its form alone; whether a request exists is for its owner to
//! say.
//!
//! Path: hot for [`EagerSender::header`] and [`Match::from_eager`], pending for the rest. Threads: plain values. Tests:
//! `header/tests.rs`.

use super::flow_control::Word;

#[cfg(test)]
mod tests;

/// The version of these bytes.
pub const VERSION: u8 = 4;

/// The longest header.
pub const MAX_SIZE: usize = 36;

/// The header of an eager message.
pub const EAGER_SIZE: usize = 12;

const KIND: u8 = 0x0f;
const EAGER: u8 = 1;
const SYNCHRONOUS: u8 = 2;
const ANNOUNCE: u8 = 3;
const ANNOUNCE_KEYED: u8 = 4;
const CLEAR_TO_SEND: u8 = 5;
const FRAGMENT: u8 = 6;
const FINISHED: u8 = 7;
const ACKNOWLEDGE: u8 = 8;
const MOVED: u8 = 9;
const FLOW: u8 = 10;
const PENDING: u8 = 11;
const MORE: u8 = 12;
/// Flag of kinds 1 to 4: the long form.
const LONG: u8 = 0x10;
/// Flag of [`FLOW`]: the sender may go on.
const GRANTED: u8 = 0x10;

/// Bits of a context in the long form.
const LONG_CONTEXT: u32 = 24;

/// What a message is matched by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Match {
    /// The communicator: below 2^24.
    pub context: u32,
    /// The sender's rank in it: at least 0.
    pub rank: i32,
    /// The tag.
    pub tag: i32,
}

impl Match {
    /// What is said by the header of an eager message; `None` if it is another. Hot.
    #[must_use]
    #[inline]
    pub const fn from_eager(bytes: &[u8; EAGER_SIZE]) -> Option<Match> {
        let [a, b, c, d, rank_and_tag @ ..] = *bytes;
        let (first, rank_and_tag) = (u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(rank_and_tag));
        let (rank, tag) = (rank_and_tag as i32, (rank_and_tag >> 32) as i32);
        if first as u8 != EAGER | LONG || rank < 0 {
            return None;
        }
        Some(Match { context: first >> 8, rank, tag })
    }

    #[inline]
    const fn is_short(&self) -> bool {
        (self.context | self.rank as u32) >> 16 == 0 && self.tag << 8 >> 8 == self.tag
    }

    /// Without kind and flags.
    #[inline]
    const fn short_word(&self) -> u64 {
        (self.rank as u64) << 8 | (self.context as u64) << 24 | (self.tag as u64) << 40
    }

    #[inline]
    const fn from_word(word: u64) -> Match {
        Match { context: (word >> 24) as u16 as u32, rank: (word >> 8) as u16 as i32, tag: (word as i64 >> 40) as i32 }
    }

    fn write(&self, kind: u8, bytes: &mut Bytes) {
        if kind != EAGER && self.is_short() {
            bytes.put(&(self.short_word() | u64::from(kind)).to_le_bytes());
        } else {
            assert!(self.context >> LONG_CONTEXT == 0 && self.rank >= 0, "{self:?} cannot be sent");
            bytes.put(&(self.context << 8 | u32::from(kind | LONG)).to_le_bytes());
            bytes.put(&self.rank.to_le_bytes());
            bytes.put(&self.tag.to_le_bytes());
        }
    }

    /// Reads what [`Match::write`] wrote. Kind and flags are those of the first byte.
    fn read(from: &mut Reader<'_>, kind: u8, flags: u8) -> Result<Match, Malformed> {
        if kind == EAGER && flags & LONG == 0 {
            return Err(Malformed::Kind(kind | flags));
        }
        let read = if flags & LONG == 0 {
            Match::from_word(u64::from_le_bytes(from.take()?))
        } else {
            let context = from.u32()? >> 8;
            Match { context, rank: from.u32()? as i32, tag: from.u32()? as i32 }
        };
        if read.rank < 0 || kind != EAGER && flags & LONG != 0 && read.is_short() {
            return Err(Malformed::Value);
        }
        Ok(read)
    }
}

/// What the headers of one sender's eager messages in a communicator have in common, worked out once: all but the tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EagerSender(u64);

impl EagerSender {
    /// Of the sender with this rank, at least 0; the context is below 2^24.
    #[must_use]
    pub const fn new(context: u32, rank: i32) -> Self {
        EagerSender((rank as u64) << 32 | (context << 8) as u64 | (EAGER | LONG) as u64)
    }

    /// The header of a message with this tag. Hot.
    #[must_use]
    #[inline]
    pub fn header(self, tag: i32) -> [u8; EAGER_SIZE] {
        let mut bytes = [0; EAGER_SIZE];
        bytes[..8].copy_from_slice(&self.0.to_le_bytes());
        bytes[8..].copy_from_slice(&tag.to_le_bytes());
        bytes
    }
}

/// Memory of a process that an adapter may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// The remote key.
    pub key: u32,
    /// Where it begins.
    pub address: u64,
    /// How many bytes; it does not go beyond the end of the address space.
    pub length: u64,
}

impl Memory {
    fn write(&self, bytes: &mut Bytes) {
        bytes.put(&self.key.to_le_bytes());
        bytes.put(&self.address.to_le_bytes());
        bytes.put(&self.length.to_le_bytes());
    }

    fn read(from: &mut Reader<'_>) -> Result<Memory, Malformed> {
        Memory { key: from.u32()?, address: from.u64()?, length: from.u64()? }.checked()
    }

    fn checked(self) -> Result<Memory, Malformed> {
        self.address.checked_add(self.length).map(|_| self).ok_or(Malformed::Value)
    }
}

/// A port of the sender's by which announced data can be read as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortKey {
    /// Its number among those that the sender has published.
    pub port: u32,
    /// Its key of the data.
    pub key: u32,
}

impl PortKey {
    /// Bytes of each behind [`Header::AnnounceKeyed`].
    pub const SIZE: usize = 8;

    /// The bytes of several.
    #[must_use]
    pub fn encode(keys: &[PortKey]) -> Vec<u8> {
        keys.iter().flat_map(|key| [key.port.to_le_bytes(), key.key.to_le_bytes()]).flatten().collect()
    }

    /// What [`PortKey::encode`] made of some.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Box<[PortKey]> {
        let (words, _) = bytes.as_chunks::<4>();
        let (pairs, _) = words.as_chunks::<2>();
        let of =
            |[port, key]: &[[u8; 4]; 2]| PortKey { port: u32::from_le_bytes(*port), key: u32::from_le_bytes(*key) };
        pairs.iter().map(of).collect()
    }
}

/// A header. A request is the number that the side gave it which it belongs to; `receive` is one of the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// The data follows.
    Eager(Match),
    /// The data follows; the sender waits until it is matched.
    Synchronous(Match, u32),
    /// The data is there.
    Announce(Match, u32, Memory),
    /// The data is there, and can be read by other ports of the sender's, too: a [`PortKey`] of each follows.
    AnnounceKeyed(Match, u32, Memory),
    /// The data of an announced message shall be sent in pieces.
    ClearToSend {
        /// The sender's.
        request: u32,
        /// The receiver's.
        receive: u32,
        /// Why it is not read, as a number of the callers'.
        why: u32,
        /// How many bytes.
        length: u64,
    },
    /// A piece of an announced message; the data follows.
    Fragment {
        /// The receiver's.
        receive: u32,
        /// Where in the message it belongs.
        offset: u64,
    },
    /// Data has been read or written.
    Finished {
        /// The other side's.
        request: u32,
        /// How many bytes.
        length: u64,
    },
    /// A synchronous message was matched.
    Acknowledge {
        /// The sender's.
        request: u32,
    },
    /// The sender's messages go by this port from now on (`stream.rs`).
    Moved {
        /// How often they have moved, this time included.
        segment: u32,
        /// How many went by the port before, since they moved there: they come first.
        count: u32,
    },
    /// Tells a sender whether it is held back.
    Flow(Word),
    /// Messages of this context pend at their sender.
    Pending(u32),
    /// Asks for messages of this context that pend.
    More(u32),
}

/// Why bytes are no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It ends before its end.
    #[error("the header is cut off")]
    Short,
    /// Bytes follow one that has no data.
    #[error("bytes follow a header without data")]
    Long,
    /// The first byte.
    #[error("{0:#04x} is no kind of header, or has flags that the kind has not")]
    Kind(u8),
    /// A value out of its range, or in the wrong one of two forms.
    #[error("a field of the header is out of its range")]
    Value,
}

/// The bytes of a header.
#[derive(Debug, Clone, Copy)]
pub struct Bytes {
    bytes: [u8; MAX_SIZE],
    length: usize,
}

impl Bytes {
    fn put(&mut self, field: &[u8]) {
        self.bytes[self.length..][..field.len()].copy_from_slice(field);
        self.length += field.len();
    }

    /// What goes on the wire.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// What of a header has not been read.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.take().map(u64::from_le_bytes)
    }
}

impl Header {
    /// Its bytes.
    ///
    /// # Panics
    /// A context is 2^24 or more, or a rank negative.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut bytes = Bytes { bytes: [0; MAX_SIZE], length: 0 };
        let begin = |bytes: &mut Bytes, first: u8, request: u32| {
            bytes.put(&[first, 0, 0, 0]);
            bytes.put(&request.to_le_bytes());
        };
        match *self {
            Header::Eager(of) => of.write(EAGER, &mut bytes),
            Header::Synchronous(of, request) => {
                of.write(SYNCHRONOUS, &mut bytes);
                bytes.put(&request.to_le_bytes());
            }
            Header::Announce(of, request, memory) => {
                of.write(ANNOUNCE, &mut bytes);
                bytes.put(&request.to_le_bytes());
                memory.write(&mut bytes);
            }
            Header::AnnounceKeyed(of, request, memory) => {
                of.write(ANNOUNCE_KEYED, &mut bytes);
                bytes.put(&request.to_le_bytes());
                memory.write(&mut bytes);
            }
            Header::ClearToSend { request, receive, why, length } => {
                begin(&mut bytes, CLEAR_TO_SEND, request);
                bytes.put(&receive.to_le_bytes());
                bytes.put(&why.to_le_bytes());
                bytes.put(&length.to_le_bytes());
            }
            Header::Fragment { receive, offset } => {
                begin(&mut bytes, FRAGMENT, receive);
                bytes.put(&offset.to_le_bytes());
            }
            Header::Finished { request, length } => {
                begin(&mut bytes, FINISHED, request);
                bytes.put(&length.to_le_bytes());
            }
            Header::Acknowledge { request } => begin(&mut bytes, ACKNOWLEDGE, request),
            Header::Moved { segment, count } => {
                begin(&mut bytes, MOVED, segment);
                bytes.put(&count.to_le_bytes());
            }
            Header::Flow(Word { number, holds_back }) => {
                begin(&mut bytes, FLOW | if holds_back { 0 } else { GRANTED }, number as u32);
                bytes.put(&((number >> 32) as u32).to_le_bytes());
            }
            Header::Pending(context) => begin(&mut bytes, PENDING, context),
            Header::More(context) => begin(&mut bytes, MORE, context),
        }
        bytes
    }

    /// The header at the front of `message`, and the data behind it.
    ///
    /// # Errors
    /// These are not the bytes of a header, or there are some behind one that has no data.
    pub fn decode(message: &[u8]) -> Result<(Header, &[u8]), Malformed> {
        let first = *message.first().ok_or(Malformed::Short)?;
        let (kind, flags) = (first & KIND, first & !KIND);
        let known = match kind {
            EAGER | SYNCHRONOUS | ANNOUNCE | ANNOUNCE_KEYED => LONG,
            FLOW => GRANTED,
            _ => 0,
        };
        if flags & !known != 0 || !(EAGER..=MORE).contains(&kind) {
            return Err(Malformed::Kind(first));
        }
        let mut from = Reader(message);
        let header = match kind {
            EAGER => Header::Eager(Match::read(&mut from, kind, flags)?),
            SYNCHRONOUS => Header::Synchronous(Match::read(&mut from, kind, flags)?, from.u32()?),
            ANNOUNCE => Header::Announce(Match::read(&mut from, kind, flags)?, from.u32()?, Memory::read(&mut from)?),
            ANNOUNCE_KEYED => {
                let of = Match::read(&mut from, kind, flags)?;
                Header::AnnounceKeyed(of, from.u32()?, Memory::read(&mut from)?)
            }
            _ => Header::decode_control(kind, flags, &mut from)?,
        };
        let has_data = matches!(kind, EAGER | SYNCHRONOUS | FRAGMENT | ANNOUNCE_KEYED);
        if has_data || from.0.is_empty() { Ok((header, from.0)) } else { Err(Malformed::Long) }
    }

    fn decode_control(kind: u8, flags: u8, from: &mut Reader<'_>) -> Result<Header, Malformed> {
        if from.u32()? >> 8 != 0 {
            return Err(Malformed::Value);
        }
        let request = from.u32()?;
        Ok(match kind {
            CLEAR_TO_SEND => {
                Header::ClearToSend { request, receive: from.u32()?, why: from.u32()?, length: from.u64()? }
            }
            FRAGMENT => Header::Fragment { receive: request, offset: from.u64()? },
            FINISHED => Header::Finished { request, length: from.u64()? },
            ACKNOWLEDGE => Header::Acknowledge { request },
            MOVED => Header::Moved { segment: request, count: from.u32()? },
            FLOW => {
                let number = u64::from(request) | u64::from(from.u32()?) << 32;
                Header::Flow(Word { number, holds_back: flags & GRANTED == 0 })
            }
            PENDING => Header::Pending(request),
            _ => Header::More(request),
        })
    }
}
