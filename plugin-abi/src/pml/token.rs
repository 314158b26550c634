// SPDX-License-Identifier: MIT OR Apache-2.0
//! The PML's tokens: of the two kinds of record it has, send buffers and requests.
//!
//! A request that the engine was given a token of is read into, or has its message waiting without a buffer; which,
//! the token's number says. Made in `transmit`, `pieces` and `reading`, read in `progress`.
//! Grade: hot. Threads: any. Tests: below.

use std::ptr::NonNull;

use engine::transport::Token;

use super::buffer::SendBuffer;
use super::request::Request;
use crate::runtime::token::{self, Face, RecordKind};

const BUFFER: RecordKind = RecordKind::new(Face::Pml, 0);
const REQUEST: RecordKind = RecordKind::new(Face::Pml, 1);

/// The numbers of a request's tokens.
const READ: u16 = 0;
const SENT: u16 = 1;

/// What a token stands for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// A send buffer: its bytes have been sent.
    Buffer(NonNull<SendBuffer>),
    /// A read of a request's message.
    Read(NonNull<Request>),
    /// A request's message, which was sent without a buffer.
    Sent(NonNull<Request>),
}

/// The token of a send buffer.
#[inline]
pub(crate) fn buffer(buffer: NonNull<SendBuffer>) -> Token {
    BUFFER.token(buffer.as_ptr(), 0)
}

/// The token of a read.
pub(crate) fn read(request: NonNull<Request>) -> Token {
    REQUEST.token(request.as_ptr(), READ)
}

/// The token of a message without a buffer.
pub(crate) fn sent(request: NonNull<Request>) -> Token {
    REQUEST.token(request.as_ptr(), SENT)
}

/// The send buffer that a token is of; `None`: it is of something else.
#[inline]
pub(crate) fn as_buffer(token: Token) -> Option<NonNull<SendBuffer>> {
    if RecordKind::of(token) == BUFFER { token::record(token) } else { None }
}

/// Reads back a token; `None` for another face's, and for 0, which the engine never gives back.
#[inline]
pub(crate) fn record(token: Token) -> Option<Record> {
    match RecordKind::of(token) {
        BUFFER => token::record(token).map(Record::Buffer),
        REQUEST if token::number(token) == SENT => token::record(token).map(Record::Sent),
        REQUEST => token::record(token).map(Record::Read),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_says_what_it_is_of() {
        let place: NonNull<Request> = NonNull::without_provenance(0x1000.try_into().expect("not 0"));
        assert_eq!(record(read(place)), Some(Record::Read(place)));
        assert_eq!(record(sent(place)), Some(Record::Sent(place)));
        let place = NonNull::without_provenance(0x2000.try_into().expect("not 0"));
        assert_eq!(record(buffer(place)), Some(Record::Buffer(place)));
        let other = RecordKind::new(Face::Btl, 0).token(place.as_ptr(), 0);
        assert_eq!((record(other), record(Token(OF_NOBODY))), (None, None));
    }

    /// What a PML's token of no record would be.
    const OF_NOBODY: u64 = 2;
}
