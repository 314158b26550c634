// SPDX-License-Identifier: MIT OR Apache-2.0
//! The summary of a block of events, before the events, so that readers know the contents of a trace and find a time
//! without reading events. Path: pending. Threads: plain data. Tests: below.

use crate::parse::{Bytes, Malformed, push_varint};

/// Most events of a block.
pub const MOST_EVENTS: usize = 1 << 16;

/// The summary of a block of events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// The thread in which they were raised.
    pub thread: u32,
    /// Number of events.
    pub events: u32,
    /// Each source that stamped some of them, by number.
    pub sources: Vec<SourceSpan>,
    /// Each type with recorded or lost events, by number.
    pub types: Vec<TypeCount>,
}

/// The events of a block that a source stamped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceSpan {
    /// The source.
    pub source: u8,
    /// Number of its events.
    pub events: u32,
    /// The least of their timestamps, ticks.
    pub first: u64,
    /// The greatest of their timestamps, ticks.
    pub last: u64,
}

/// The events of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypeCount {
    /// The type.
    pub event_type: u8,
    /// Number of its events in the block.
    pub events: u32,
    /// Number of its events lost since the last block that reported losses.
    pub lost: u64,
}

impl Summary {
    pub(crate) fn encode(&self, to: &mut Vec<u8>) {
        for number in [self.thread, self.events, self.sources.len() as u32] {
            push_varint(to, number.into());
        }
        for span in &self.sources {
            to.push(span.source);
            push_varint(to, span.events.into());
            push_varint(to, span.first);
            push_varint(to, span.last - span.first);
        }
        push_varint(to, self.types.len() as u64);
        for count in &self.types {
            to.push(count.event_type);
            push_varint(to, count.events.into());
            push_varint(to, count.lost);
        }
    }

    pub(crate) fn decode(mut from: Bytes<'_>) -> Result<Summary, Malformed> {
        let thread = from.varint_up_to(u32::MAX as usize, "a thread's number")? as u32;
        let events = from.varint_up_to(MOST_EVENTS, "at most 65536 events")? as u32;
        let mut sources = Vec::new();
        for _ in 0..from.varint_up_to(256, "at most 256 sources")? {
            let source = from.u8()?;
            let events = from.varint_up_to(events as usize, "no more events than the block's")? as u32;
            let first = from.varint()?;
            let last = first.checked_add(from.varint()?).ok_or(Malformed("a time of at most 64 bits"))?;
            sources.push(SourceSpan { source, events, first, last });
        }
        let mut types = Vec::new();
        for _ in 0..from.varint_up_to(256, "at most 256 types")? {
            let event_type = from.u8()?;
            let events = from.varint_up_to(events as usize, "no more events than the block's")? as u32;
            types.push(TypeCount { event_type, events, lost: from.varint()? });
        }
        from.end()?;
        let summary = Summary { thread, events, sources, types };
        summary.check()?;
        Ok(summary)
    }

    fn check(&self) -> Result<(), Malformed> {
        let ascending = self.sources.windows(2).all(|pair| pair[0].source < pair[1].source)
            && self.types.windows(2).all(|pair| pair[0].event_type < pair[1].event_type);
        let by_source: u64 = self.sources.iter().map(|span| u64::from(span.events)).sum();
        let by_type: u64 = self.types.iter().map(|count| u64::from(count.events)).sum();
        if !ascending {
            Err(Malformed("sources and types in their order"))
        } else if by_source != u64::from(self.events) || by_type != u64::from(self.events) {
            Err(Malformed("as many events by source and by type as in all"))
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> Summary {
        Summary {
            thread: 4,
            events: 1000,
            sources: vec![
                SourceSpan { source: 0, events: 900, first: 1 << 50, last: (1 << 50) + 77 },
                SourceSpan { source: 5, events: 100, first: 7, last: u64::MAX },
            ],
            types: vec![
                TypeCount { event_type: 1, events: 1000, lost: 0 },
                TypeCount { event_type: 255, events: 0, lost: u64::MAX },
            ],
        }
    }

    #[test]
    fn decode_returns_the_encoded_summary() {
        for summary in [Summary::default(), summary()] {
            let mut bytes = Vec::new();
            summary.encode(&mut bytes);
            assert_eq!(Summary::decode(Bytes(&bytes)), Ok(summary));
        }
    }

    #[test]
    fn decode_refuses_a_summary_that_contradicts_itself() {
        let refused = |change: fn(&mut Summary)| {
            let mut summary = summary();
            change(&mut summary);
            let mut bytes = Vec::new();
            summary.encode(&mut bytes);
            Summary::decode(Bytes(&bytes)).is_err()
        };
        assert!(refused(|summary| summary.events = 999));
        assert!(refused(|summary| summary.events = 65537));
        assert!(refused(|summary| summary.sources.swap(0, 1)));
        assert!(refused(|summary| summary.types[1].event_type = 1));
        assert!(refused(|summary| summary.types[1].events = 1));
    }
}
