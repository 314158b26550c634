// SPDX-License-Identifier: MIT OR Apache-2.0
//! libfabric's envelope in headers: context, tag, and the remote CQ data of sends that have it. The header does not
//! name the sender: the connection by which the message comes does. Called by the header and by `receive`. Grade: hot
//! for [`WireEnvelope::from_eager`], pending for the rest. Threads: plain values. Tests: `header/tests.rs`, and
//! `messenger/tests/libfabric.rs`.

use super::{Bytes, CONTEXT, EAGER, EAGER_SIZE, Match, Reader, WireEnvelope, append};
use crate::messenger::matching::{ADDR_UNSPEC, FiTag, Pattern, Tagged};
use crate::messenger::route::Route;

/// Flag: remote CQ data follows the tag.
const DATA: u8 = 0x20;

impl WireEnvelope for Tagged {
    /// The bits of the route that names the peer's account in flow control, so with one rail and no shared memory the
    /// number of its endpoint; for the process itself what [`Communicators::rank`] returns; or [`ADDR_UNSPEC`].
    ///
    /// [`Communicators::rank`]: crate::messenger::host::Communicators::rank
    type Peer = u64;
    type Tag = FiTag;

    const FLAGS: u8 = DATA;

    #[inline(always)]
    fn new(source: u64, FiTag { tag, data, .. }: FiTag) -> Self {
        Tagged { source, tag, data }
    }

    #[inline(always)]
    fn source(self) -> u64 {
        self.source
    }

    #[inline(always)]
    fn tag(self) -> FiTag {
        FiTag { tag: self.tag, ignore: 0, data: self.data }
    }

    #[inline(always)]
    fn pattern(source: u64, FiTag { tag, ignore, .. }: FiTag) -> Pattern<Self> {
        Pattern::tagged(source, tag, ignore)
    }

    #[inline(always)]
    fn is_of_library(_tag: FiTag) -> bool {
        false
    }

    #[inline(always)]
    fn sent_by(self, sender: impl FnOnce() -> Option<Route>) -> Option<Self> {
        sender().map(|sender| Tagged { source: sender.bits(), ..self })
    }

    /// Returns the number of the peer's endpoint, or of its place on the host, and the low half of the tag.
    #[inline]
    fn shown(peer: u64, FiTag { tag, .. }: FiTag) -> (i32, i32) {
        (peer as i32, tag as i32)
    }

    #[inline(always)]
    fn from_eager(message: &[u8]) -> Option<(Match<Self>, &[u8])> {
        let (bytes, rest) = message.split_first_chunk::<EAGER_SIZE>()?;
        let (Some(first), Some(tag)) = (bytes.first_chunk(), bytes.last_chunk()) else { return None };
        let (first, tag) = (u32::from_le_bytes(*first), u64::from_le_bytes(*tag));
        let (data, rest) = match first as u8 {
            EAGER => (None, rest),
            kind if kind == EAGER | DATA => {
                let (data, rest) = rest.split_first_chunk()?;
                (Some(u64::from_le_bytes(*data)), rest)
            }
            _ => return None,
        };
        Some((Match { context: first >> 8, envelope: Tagged { source: ADDR_UNSPEC, tag, data } }, rest))
    }

    #[inline(always)]
    fn write(of: Match<Self>, kind: u8, bytes: &mut Bytes) {
        assert!(of.context >> CONTEXT == 0, "{of:?} cannot be sent");
        let Tagged { tag, data, .. } = of.envelope;
        let flags = if data.is_some() { DATA } else { 0 };
        append(bytes, (of.context << 8 | u32::from(kind | flags)).to_le_bytes());
        append(bytes, tag.to_le_bytes());
        if let Some(data) = data {
            append(bytes, data.to_le_bytes());
        }
    }

    fn read(from: &mut Reader<'_>, _kind: u8, flags: u8) -> Option<Match<Self>> {
        let (context, tag) = (from.u32()? >> 8, from.u64()?);
        let data = if flags & DATA == 0 { None } else { Some(from.u64()?) };
        Some(Match { context, envelope: Tagged { source: ADDR_UNSPEC, tag, data } })
    }
}
