// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tokens: how the engine names a request of the plugin's when it is done: the address of its record, and a bit that says which
//! kind of record that is.
//!
//! Made in `send`, `rdma` and `atomic`, read in `progress`. Grade: hot. Threads: any. Tests: `rdma.rs`.

use std::ptr::NonNull;

use engine::event::Token;

use crate::descriptor::Descriptor;

/// The low bit of a token tells an RDMA operation from a descriptor; both are aligned further.
pub(crate) const OPERATION: u64 = 1;

/// The bits of a token that are an address: programs have the lower half of 48 bits. Above them a watched operation has a number, so that
/// its name is not soon used again.
const ADDRESS: u64 = ((1 << TURN_SHIFT) - 1) & !OPERATION;

/// See [`ADDRESS`].
pub(crate) const TURN_SHIFT: u32 = 48;

/// The token of a message.
#[inline]
pub(crate) fn token(descriptor: *mut Descriptor) -> Token {
    Token(descriptor.expose_provenance() as u64)
}

/// What a token stands for.
pub(crate) enum Record {
    /// A message.
    Descriptor(NonNull<Descriptor>),
    /// A put, a get or an atomic.
    Operation(NonNull<crate::rdma::Operation>),
}

/// Reads back a token of this module's; `None` for 0, which the engine never gives back.
#[inline]
pub(crate) fn record(token: Token) -> Option<Record> {
    let address = (token.0 & ADDRESS) as usize;
    if token.0 & OPERATION == 0 {
        NonNull::new(std::ptr::with_exposed_provenance_mut(address)).map(Record::Descriptor)
    } else {
        NonNull::new(std::ptr::with_exposed_provenance_mut(address)).map(Record::Operation)
    }
}
