// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tokens of the PML: they stand for its two kinds of record, send buffers and requests, or for a turn.
//!
//! Made in `transmit`, `fragment`, `failover` and `ports`; read in `progress` and `failover`. Grade: hot. Threads: any.
//! Tests: below.

use std::ptr::{NonNull, null_mut};

use engine::transport::Token;

use super::buffer::SendBuffer;
use crate::pml::request::Handle;
use crate::runtime::token::{self, Face, RecordKind};

const BUFFER: RecordKind = RecordKind::new(Face::Pml, 0);
const REQUEST: RecordKind = RecordKind::new(Face::Pml, 1);

/// Numbers in the tokens of a request: its message is read, or is sent without a buffer.
const READ: u16 = 0;
const SENT: u16 = 1;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// A send buffer.
    Buffer(NonNull<SendBuffer>),
    /// A request whose read has ended.
    Read(Handle),
    /// A request whose message or fragment was sent without a buffer.
    Sent(Handle),
    /// No record: it is the turn of pending messages.
    Turn,
}

#[inline]
pub(crate) fn buffer(buffer: NonNull<SendBuffer>) -> Token {
    BUFFER.token(buffer.as_ptr(), 0)
}

pub(crate) fn read(request: Handle) -> Token {
    REQUEST.token(request.pointer().as_ptr(), READ)
}

/// Makes the token of a message without a buffer.
pub(crate) fn sent(request: Handle) -> Token {
    REQUEST.token(request.pointer().as_ptr(), SENT)
}

/// Makes the token of a turn.
pub(crate) fn turn() -> Token {
    BUFFER.token(null_mut::<SendBuffer>(), 0)
}

#[inline]
pub(crate) fn as_buffer(token: Token) -> Option<NonNull<SendBuffer>> {
    if RecordKind::of(token) == BUFFER { token::record(token) } else { None }
}

/// Decodes a token; `None` for the BTL's, and for 0, which the engine never returns.
///
/// # Safety
/// P1: the engine has returned the token, which it does once, and only with those that it was given.
#[inline]
pub(crate) unsafe fn record(token: Token) -> Option<Record> {
    match RecordKind::of(token) {
        BUFFER => Some(token::record(token).map_or(Record::Turn, Record::Buffer)),
        REQUEST => {
            // SAFETY: P1: only handles become tokens of this kind, and the engine has returned this one.
            let request = unsafe { Handle::new(token::record(token)?) };
            Some(if token::number(token) == SENT { Record::Sent(request) } else { Record::Read(request) })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_its_record_and_a_token_of_the_btl_names_none() {
        // SAFETY: P1: nobody follows this handle.
        let request = unsafe { Handle::new(NonNull::without_provenance(0x1000.try_into().expect("not 0"))) };
        // SAFETY: P1: nobody uses the records of these tokens.
        let record = |token| unsafe { record(token) };
        assert_eq!(record(read(request)), Some(Record::Read(request)));
        assert_eq!(record(sent(request)), Some(Record::Sent(request)));
        let place = NonNull::without_provenance(0x2000.try_into().expect("not 0"));
        assert_eq!(record(buffer(place)), Some(Record::Buffer(place)));
        let other = RecordKind::new(Face::Btl, 0).token(place.as_ptr(), 0);
        assert_eq!((record(other), record(turn()), as_buffer(turn())), (None, Some(Record::Turn), None));
        assert_ne!(turn(), Token(0), "which the engine never returns");
    }
}
