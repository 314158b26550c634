// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages of atomic operations: requests, and answers with the old values. Little-endian.
//!
//! ```text
//! request: byte 0: version, 1   1: 0   2: datatype   3: operation   4: calls   5: who counts it: 1 its region,
//!          2 the endpoint   6-7: 0   8-15: number of the operation
//!          16-23: address   24-31: key   32-39: elements there   40-43: first of them   44-47: how many from it on
//!          48-: the operands, then the values that targets are compared with
//! answer:  byte 0: version, 1   1: 1   2: outcome   3-7: 0   8-15: number of the operation   16-: old values
//! ```
//!
//! Called by `atomic` and `target`. Grade: pending. Threads: plain values. Tests: below.

use super::Calls;
use crate::sys;

const VERSION: u8 = 1;

/// Bytes before the operands of a request.
pub(super) const REQUEST: usize = 48;

/// Bytes before the old values of an answer.
const ANSWER: usize = 16;

/// A request for some elements of a range of the target's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) calls: Calls,
    pub(super) datatype: sys::fi_datatype,
    pub(super) operation: sys::fi_op,
    /// Number of the initiator.
    pub(super) number: u32,
    /// The range: address, key and number of elements.
    pub(super) address: u64,
    pub(super) key: u64,
    pub(super) elements: u64,
    /// The first of these elements, and how many.
    pub(super) first: u32,
    pub(super) count: u32,
    /// Whether the region, and whether the endpoint, counts the operation when this request is done
    /// ([`crate::mr::is_counted`]).
    pub(super) counts: [bool; 2],
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// No region permits the access.
    Refused,
    /// The target does not have the operation.
    Unknown,
}

/// A message that has arrived, with the values that follow.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message<'m> {
    Request(Request, &'m [u8]),
    Answer { number: u32, outcome: Outcome, old: &'m [u8] },
}

/// Writes a request, to which the caller adds the operands.
pub(super) fn request(of: &Request) -> Vec<u8> {
    let counts = u8::from(of.counts[0]) | u8::from(of.counts[1]) << 1;
    let mut bytes = vec![VERSION, 0, of.datatype as u8, of.operation as u8, of.calls as u8, counts, 0, 0];
    for word in [of.number.into(), of.address, of.key, of.elements, u64::from(of.count) << 32 | u64::from(of.first)] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Writes an answer.
pub(super) fn answer(number: u32, outcome: Outcome, old: &[u8]) -> Vec<u8> {
    let mut bytes = vec![VERSION, 1, outcome as u8, 0, 0, 0, 0, 0];
    bytes.extend_from_slice(&u64::from(number).to_le_bytes());
    bytes.extend_from_slice(old);
    bytes
}

/// Reads a message; `None` if it is none.
pub(super) fn decode(bytes: &[u8]) -> Option<Message<'_>> {
    let word = |index: usize| {
        let word = bytes.get(index * 8..index * 8 + 8)?;
        Some(u64::from_le_bytes(word.try_into().ok()?))
    };
    let number = word(1)? as u32;
    match *bytes {
        [VERSION, 0, datatype, operation, calls, counts, ..] => {
            let (calls, elements) = (Calls::of(calls)?, word(5)?);
            let of = Request {
                calls,
                datatype: datatype.into(),
                operation: operation.into(),
                number,
                address: word(2)?,
                key: word(3)?,
                elements: word(4)?,
                first: elements as u32,
                count: (elements >> 32) as u32,
                counts: [1, 2].map(|bit| counts & bit != 0),
            };
            Some(Message::Request(of, &bytes[REQUEST..]))
        }
        [VERSION, 1, outcome, ..] => {
            let outcome = [Outcome::Done, Outcome::Refused, Outcome::Unknown].get(usize::from(outcome))?;
            Some(Message::Answer { number, outcome: *outcome, old: &bytes[ANSWER..] })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_their_bytes_and_nothing_else_is_one() {
        let of = Request {
            calls: Calls::Compare,
            datatype: sys::FI_UINT64,
            operation: sys::FI_CSWAP,
            number: 0x0102_0304,
            address: 0x1122_3344_5566_7788,
            key: 9,
            elements: 10,
            first: 3,
            count: 2,
            counts: [false, true],
        };
        let mut bytes = request(&of);
        assert_eq!(bytes.len(), REQUEST);
        assert_eq!(bytes[..17], [1, 0, 7, 12, 2, 2, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0, 0x88]);
        assert_eq!((bytes[24], bytes[32], bytes[40], bytes[44]), (9, 10, 3, 2));
        bytes.extend_from_slice(&[7, 8]);
        assert_eq!(decode(&bytes), Some(Message::Request(of, &[7, 8])));
        assert_eq!(decode(&bytes[..47]), None);
        let answer = answer(5, Outcome::Refused, &[6]);
        assert_eq!(answer, [1, 1, 1, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6]);
        assert_eq!(decode(&answer), Some(Message::Answer { number: 5, outcome: Outcome::Refused, old: &[6] }));
        assert_eq!(decode(&answer[..15]), None);
        for (index, byte) in [(0, 2), (1, 2), (2, 3)] {
            let mut other = answer.clone();
            other[index] = byte;
            assert_eq!(decode(&other), None);
        }
        bytes[4] = 3;
        assert_eq!(decode(&bytes), None);
    }
}
