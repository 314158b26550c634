// SPDX-License-Identifier: MIT OR Apache-2.0
//! The index, the last block of a finished file: offset and kind of each block, and the summaries of blocks of events.
//! Path: pending. Threads: plain data. Tests: below; `tests/round_trip.rs`.

use crate::frame::{EVENTS, MOST_SUMMARY, PREAMBLE};
use crate::parse::{Bytes, Malformed, push_varint};
use crate::summary::Summary;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) number: u32,
    pub(crate) offset: u64,
    pub(crate) kind: u8,
    pub(crate) summary: Summary,
}

pub(crate) fn encode(places: &[Place], to: &mut Vec<u8>) {
    push_varint(to, places.len() as u64);
    let mut before = PREAMBLE as u64;
    let mut summary = Vec::new();
    for place in places {
        push_varint(to, place.offset - before);
        before = place.offset;
        to.push(place.kind);
        if place.kind == EVENTS {
            summary.clear();
            place.summary.encode(&mut summary);
            push_varint(to, summary.len() as u64);
            to.extend_from_slice(&summary);
        }
    }
}

pub(crate) fn decode(payload: &[u8]) -> Result<Vec<Place>, Malformed> {
    let mut from = Bytes(payload);
    let count = from.varint_up_to(payload.len() / 2, "no more blocks than there are bytes for")?;
    let mut places = Vec::new();
    let mut offset = PREAMBLE as u64;
    for number in 0..count {
        let away = from.varint()?;
        offset = offset.checked_add(away).ok_or(Malformed("an offset of at most 64 bits"))?;
        let kind = from.u8()?;
        let mut summary = Summary::default();
        if kind == EVENTS {
            let bytes = from.varint_up_to(MOST_SUMMARY, "a summary's length")?;
            summary = Summary::decode(Bytes(from.take(bytes)?))?;
        }
        places.push(Place { number: number as u32, offset, kind, summary });
    }
    from.end()?;
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{CLOCKS, HEAD};

    #[test]
    fn it_comes_back_and_none_of_its_beginnings_is_one() {
        let summary = Summary { thread: 3, ..Summary::default() };
        let place = |number, offset, kind| Place { number, offset, kind, summary: Summary::default() };
        let places =
            [place(0, 16, HEAD), Place { summary, ..place(1, 1 << 40, EVENTS) }, place(2, (1 << 40) + 5, CLOCKS)];
        let mut bytes = Vec::new();
        encode(&places, &mut bytes);
        assert_eq!(decode(&bytes).as_deref(), Ok(&places[..]));
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length]).is_err(), "{length}");
        }
    }
}
