// SPDX-License-Identifier: MIT OR Apache-2.0
//! MPI's envelope in headers: context, rank and tag. Called by the header, by `receive`, and by hosts that send without
//! a request. Grade: hot for [`EagerSender::header`] and [`WireEnvelope::from_eager`], pending for the rest. Threads:
//! plain values. Tests: `header/tests.rs`.

use super::{Bytes, CONTEXT, EAGER, EAGER_SIZE, Match, Reader, WireEnvelope, append};
use crate::messenger::matching::{Envelope, Pattern};
use crate::messenger::route::Route;

/// Flag of the long form.
const LONG: u8 = 0x10;

impl Match<Envelope> {
    /// The match of a message from this rank, at least 0, with this tag, in a context below 2^24.
    #[inline(always)]
    pub const fn new(context: u32, rank: i32, tag: i32) -> Self {
        Match { context, envelope: Envelope::new(rank, tag) }
    }

    #[inline]
    const fn is_short(&self) -> bool {
        let tag = self.envelope.tag();
        (self.context | self.envelope.source() as u32) >> 16 == 0 && tag << 8 >> 8 == tag
    }

    #[inline]
    const fn from_word(word: u64) -> Self {
        Match::new((word >> 24) as u16 as u32, (word >> 8) as u16 as i32, (word as i64 >> 40) as i32)
    }
}

impl WireEnvelope for Envelope {
    type Peer = i32;
    type Tag = i32;

    const FLAGS: u8 = LONG;

    #[inline(always)]
    fn new(source: i32, tag: i32) -> Self {
        Envelope::new(source, tag)
    }

    #[inline(always)]
    fn source(self) -> i32 {
        Envelope::source(self)
    }

    #[inline(always)]
    fn tag(self) -> i32 {
        Envelope::tag(self)
    }

    #[inline(always)]
    fn pattern(source: i32, tag: i32) -> Pattern {
        Pattern::new(source, tag)
    }

    #[inline(always)]
    fn is_of_library(tag: i32) -> bool {
        tag < 0
    }

    #[inline(always)]
    fn sent_by(self, _sender: impl FnOnce() -> Option<Route>) -> Option<Self> {
        Some(self)
    }

    #[inline(always)]
    fn shown(peer: i32, tag: i32) -> (i32, i32) {
        (peer, tag)
    }

    #[inline(always)]
    fn from_eager(message: &[u8]) -> Option<(Match, &[u8])> {
        let (bytes, data) = message.split_first_chunk::<EAGER_SIZE>()?;
        let (Some(first), Some(rank_and_tag)) = (bytes.first_chunk(), bytes.last_chunk()) else { return None };
        let (first, rank_and_tag) = (u32::from_le_bytes(*first), u64::from_le_bytes(*rank_and_tag));
        let (rank, tag) = (rank_and_tag as i32, (rank_and_tag >> 32) as i32);
        if first as u8 != EAGER | LONG || rank < 0 {
            return None;
        }
        Some((Match::new(first >> 8, rank, tag), data))
    }

    fn write(of: Match, kind: u8, bytes: &mut Bytes) {
        let (rank, tag) = (of.envelope.source(), of.envelope.tag());
        if kind != EAGER && of.is_short() {
            let word = (rank as u64) << 8 | u64::from(of.context) << 24 | (tag as u64) << 40;
            append(bytes, (word | u64::from(kind)).to_le_bytes());
        } else {
            assert!(of.context >> CONTEXT == 0 && rank >= 0, "{of:?} cannot be sent");
            append(bytes, (of.context << 8 | u32::from(kind | LONG)).to_le_bytes());
            append(bytes, rank.to_le_bytes());
            append(bytes, tag.to_le_bytes());
        }
    }

    fn read(from: &mut Reader<'_>, kind: u8, flags: u8) -> Option<Match> {
        if kind == EAGER && flags & LONG == 0 {
            return None;
        }
        let read = if flags & LONG == 0 {
            Match::from_word(u64::from_le_bytes(from.take()?))
        } else {
            let context = from.u32()? >> 8;
            Match::new(context, from.u32()? as i32, from.u32()? as i32)
        };
        let is_due = kind == EAGER || flags & LONG == 0 || !read.is_short();
        (read.envelope.source() >= 0 && is_due).then_some(read)
    }
}

/// The part that the headers of one sender's eager messages in a communicator share: all but the tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EagerSender(u64);

impl EagerSender {
    /// Makes the sender with this rank, at least 0, in a context below 2^24.
    pub const fn new(context: u32, rank: i32) -> Self {
        EagerSender((rank as u64) << 32 | (context << 8) as u64 | (EAGER | LONG) as u64)
    }

    /// Returns the header of a message with this tag. Hot.
    #[inline]
    pub fn header(self, tag: i32) -> [u8; EAGER_SIZE] {
        let mut bytes = [0; EAGER_SIZE];
        bytes[..8].copy_from_slice(&self.0.to_le_bytes());
        bytes[8..].copy_from_slice(&tag.to_le_bytes());
        bytes
    }
}
