// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes and checks of the headers of messages on the wire.
//!
//! Headers carry no version: processes publish [`VERSION`] in the modex, and do not connect to another version. All
//! fields are little-endian. The low half of the first byte is the kind, the high half flags. The immediate data
//! (`transport/work_request.rs`), or another carrier of messages in its own way, names the sending process.
//!
//! Kinds 1 to 4, and 13, are messages to be matched. MPI's begin with context, rank and tag: in 8 bytes if context and
//! rank are below 2^16 and the tag is a signed 24-bit number, else in 12. An eager message always has the long form,
//! with which it takes 22 instructions less.
//!
//! ```text
//! short, 8 bytes    byte 0: kind, flags   1-2: rank      3-4: context   5-7: tag
//! long, 12 bytes    byte 0: kind, LONG    1-3: context   4-7: rank      8-11: tag
//! libfabric's       byte 0: kind, DATA    1-3: context   4-11: tag      with DATA: remote CQ data 8
//! then   Eager        nothing: 12 bytes in all; the data follows
//!        Synchronous  request 4: the receiver acknowledges the match; the data follows
//!        Delivered    request 4: the receiver acknowledges at once, matched or not; the data follows
//!        ReadyToSend  request 4, key 4, address 8, length 8: memory with the data; address 0: it cannot be read, and
//!                     `key` is the reason, for events
//!        ReadyToSendKeyed  the same; then 8 bytes for each port of the sender by which the data can be read:
//!                     port number 4, that port's key 4
//! ```
//!
//! The other kinds name a request, if any, by the number that its own process gave it. Bytes 1 to 3 are 0.
//!
//! ```text
//! ClearToSend   request 4, receive 4, why 4, length 8 answers ReadyToSend: send `length` bytes in fragments; `why`:
//!                                                     why the receiver does not read them, for events
//! Fragment      receive 4, offset 8; data follows     a part of an announced message
//! Finished      request 4, length 8                   `length` bytes were read
//! Acknowledge   request 4                             a synchronous message was matched, another delivered
//! Moved         segment 4, count 4                    the messages of a sender continue on this port
//!                                                     (`rails/failover.rs`)
//! Flow          number 8; flag GRANTED                the sender may send short messages eagerly, or must not
//! Pending       context 4                             the sender has messages that it has not announced
//! More          context 4                             the receiver asks for them
//! ```
//!
//! Each header has exactly one encoding: `decode` refuses all other bytes. It checks the form alone; `receive` checks
//! that a request exists, and that its peer has sent the message. Called by protocols and hosts. Grade: hot for
//! [`EagerSender::header`] and [`WireEnvelope::from_eager`], pending for the rest. Threads: plain values. Tests:
//! `header/tests.rs`.

use super::flow_control::Word;
use super::matching::Envelope;
use super::path_taken::Reason;
use arrayvec::ArrayVec;

mod envelope;
mod libfabric;
mod memory;
mod mpi;
#[cfg(test)]
mod tests;

pub use envelope::{Match, WireEnvelope};
pub use memory::{Memory, PortKey};
pub use mpi::EagerSender;

/// The version of these bytes.
pub const VERSION: u8 = 5;

/// Bytes of the longest header of MPI's.
pub const MAX_SIZE: usize = 36;

/// Bytes of the longest header of libfabric's.
pub const MAX_TAGGED_SIZE: usize = 44;

/// Bytes of an eager message's header; with libfabric's remote CQ data it has 8 more.
pub const EAGER_SIZE: usize = 12;

const KIND: u8 = 0x0f;
const EAGER: u8 = 1;
const SYNCHRONOUS: u8 = 2;
const READY_TO_SEND: u8 = 3;
const READY_TO_SEND_KEYED: u8 = 4;
const CLEAR_TO_SEND: u8 = 5;
const FRAGMENT: u8 = 6;
const FINISHED: u8 = 7;
const ACKNOWLEDGE: u8 = 8;
const MOVED: u8 = 9;
const FLOW: u8 = 10;
const PENDING: u8 = 11;
const MORE: u8 = 12;
const DELIVERED: u8 = 13;
/// Flag of [`FLOW`]: set for `GoOn`, clear for `HoldBack`.
const GRANTED: u8 = 0x10;

/// Bits of a context in the header of a message.
const CONTEXT: u32 = 24;

/// A header. A bare `u32` is the request's number at the sender of the message, or a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header<E = Envelope> {
    /// The data follows.
    Eager(Match<E>),
    /// The data follows; the sender waits until it is matched.
    Synchronous(Match<E>, u32),
    /// The data follows; the sender waits until the receiver has it.
    Delivered(Match<E>, u32),
    /// The data is in this memory.
    ReadyToSend(Match<E>, u32, Memory),
    /// The data is in this memory. A [`PortKey`] for each port by which it can be read follows.
    ReadyToSendKeyed(Match<E>, u32, Memory),
    /// Asks for the data of an announced message in fragments.
    ClearToSend {
        /// Number of the send at its sender.
        request: u32,
        /// Number of the receive at its receiver.
        receive: u32,
        /// Why the receiver does not read the data.
        why: Reason,
        /// Number of bytes to send.
        length: u64,
    },
    /// A fragment of an announced message; the data follows.
    Fragment {
        /// Number of the receive at its receiver.
        receive: u32,
        /// Offset of the fragment in the message.
        offset: u64,
    },
    /// The data has been read or written.
    Finished {
        /// Number of the request at the process that this header goes to.
        request: u32,
        /// Number of bytes, at most that of the message: as many as the receive has room for.
        length: u64,
    },
    /// A synchronous message was matched, or another one delivered.
    Acknowledge {
        /// Number of the send at its sender.
        request: u32,
    },
    /// The sender's messages come by this port from now on (`failover.rs`).
    Moved {
        /// How often they have moved, this move included.
        segment: u32,
        /// Number of messages in the previous segment. The receiver handles these first.
        count: u32,
    },
    /// `HoldBack` or `GoOn`.
    Flow(Word),
    /// Messages of this context pend at their sender.
    Pending(u32),
    /// Asks the sender for its pending messages of this context.
    More(u32),
}

/// The encoded bytes of a header, for the wire.
pub type Bytes = ArrayVec<u8, MAX_TAGGED_SIZE>;

/// The bytes of a header that are to be read.
#[derive(Debug)]
pub struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

/// Appends a field. The longest header has room for all of its fields.
#[inline(always)]
fn append<const N: usize>(bytes: &mut Bytes, field: [u8; N]) {
    bytes.try_extend_from_slice(&field).expect("the field is part of a header");
}

impl<E: WireEnvelope> Header<E> {
    /// Encodes the header of an eager message. Hot.
    ///
    /// # Panics
    /// As [`Self::encode`].
    #[inline]
    pub fn eager(of: Match<E>) -> Bytes {
        let mut bytes = Bytes::new();
        E::write(of, EAGER, &mut bytes);
        bytes
    }

    /// Encodes the header.
    ///
    /// # Panics
    /// The context is 2^24 or more, or the rank of an MPI process negative.
    pub fn encode(&self) -> Bytes {
        let mut bytes = Bytes::new();
        let begin = |bytes: &mut Bytes, first: u8, request: u32| {
            append(bytes, [first, 0, 0, 0]);
            append(bytes, request.to_le_bytes());
        };
        match *self {
            Header::Eager(of) => E::write(of, EAGER, &mut bytes),
            Header::Synchronous(of, request) | Header::Delivered(of, request) => {
                let is_delivered = matches!(self, Header::Delivered(..));
                E::write(of, if is_delivered { DELIVERED } else { SYNCHRONOUS }, &mut bytes);
                append(&mut bytes, request.to_le_bytes());
            }
            Header::ReadyToSend(of, request, memory) | Header::ReadyToSendKeyed(of, request, memory) => {
                let is_keyed = matches!(self, Header::ReadyToSendKeyed(..));
                E::write(of, if is_keyed { READY_TO_SEND_KEYED } else { READY_TO_SEND }, &mut bytes);
                append(&mut bytes, request.to_le_bytes());
                memory.write(&mut bytes);
            }
            Header::ClearToSend { request, receive, why, length } => {
                begin(&mut bytes, CLEAR_TO_SEND, request);
                append(&mut bytes, receive.to_le_bytes());
                append(&mut bytes, why.code().to_le_bytes());
                append(&mut bytes, length.to_le_bytes());
            }
            Header::Fragment { receive, offset } => {
                begin(&mut bytes, FRAGMENT, receive);
                append(&mut bytes, offset.to_le_bytes());
            }
            Header::Finished { request, length } => {
                begin(&mut bytes, FINISHED, request);
                append(&mut bytes, length.to_le_bytes());
            }
            Header::Acknowledge { request } => begin(&mut bytes, ACKNOWLEDGE, request),
            Header::Moved { segment, count } => {
                begin(&mut bytes, MOVED, segment);
                append(&mut bytes, count.to_le_bytes());
            }
            Header::Flow(Word { number, holds_back }) => {
                begin(&mut bytes, FLOW | if holds_back { 0 } else { GRANTED }, number as u32);
                append(&mut bytes, ((number >> 32) as u32).to_le_bytes());
            }
            Header::Pending(context) => begin(&mut bytes, PENDING, context),
            Header::More(context) => begin(&mut bytes, MORE, context),
        }
        bytes
    }

    /// Decodes the header at the front of `message`, and returns the data behind it. `None`: the bytes are no header, a
    /// value is out of its range or in the long form where the short one is due, bytes follow a header without data, or
    /// a part of a [`PortKey`] follows.
    pub fn decode(message: &[u8]) -> Option<(Self, &[u8])> {
        let first = *message.first()?;
        let (kind, flags) = (first & KIND, first & !KIND);
        let known = match kind {
            EAGER | SYNCHRONOUS | READY_TO_SEND | READY_TO_SEND_KEYED | DELIVERED => E::FLAGS,
            FLOW => GRANTED,
            _ => 0,
        };
        if flags & !known != 0 || !(EAGER..=DELIVERED).contains(&kind) {
            return None;
        }
        let mut from = Reader(message);
        let header = match kind {
            EAGER => Header::Eager(E::read(&mut from, kind, flags)?),
            SYNCHRONOUS => Header::Synchronous(E::read(&mut from, kind, flags)?, from.u32()?),
            DELIVERED => Header::Delivered(E::read(&mut from, kind, flags)?, from.u32()?),
            READY_TO_SEND => {
                Header::ReadyToSend(E::read(&mut from, kind, flags)?, from.u32()?, Memory::read(&mut from)?)
            }
            READY_TO_SEND_KEYED => {
                let of = E::read(&mut from, kind, flags)?;
                Header::ReadyToSendKeyed(of, from.u32()?, Memory::read(&mut from)?)
            }
            _ => Header::decode_control(kind, flags, &mut from)?,
        };
        let is_whole = match kind {
            EAGER | SYNCHRONOUS | DELIVERED | FRAGMENT => true,
            READY_TO_SEND_KEYED => from.0.len().is_multiple_of(PortKey::SIZE),
            _ => from.0.is_empty(),
        };
        is_whole.then_some((header, from.0))
    }

    /// Returns the number of the transfer that the message answers or continues, as this process gave it.
    pub fn answered(&self) -> Option<u32> {
        match *self {
            Header::ClearToSend { request: number, .. }
            | Header::Fragment { receive: number, .. }
            | Header::Finished { request: number, .. }
            | Header::Acknowledge { request: number } => Some(number),
            _ => None,
        }
    }

    fn decode_control(kind: u8, flags: u8, from: &mut Reader<'_>) -> Option<Self> {
        if from.u32()? >> 8 != 0 {
            return None;
        }
        let request = from.u32()?;
        Some(match kind {
            CLEAR_TO_SEND => {
                let (receive, why) = (from.u32()?, Reason::of_code(from.u32()?)?);
                Header::ClearToSend { request, receive, why, length: from.u64()? }
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
