// SPDX-License-Identifier: MIT OR Apache-2.0
//! The BTL's tokens, which name its two kinds of record, descriptors and operations. Made in `send`, `detour` and
//! `rdma`, read in `completion` and `descriptor`. Grade: hot. Threads: any. Tests: below.

use std::ptr::NonNull;

use engine::transport::Token;

use super::one_sided::operation::Operation;
use super::two_sided::descriptor::pool::Descriptor;
use crate::runtime::free_list::Owned;
use crate::runtime::token::{self, Face, OPERATION, RecordKind};

const DESCRIPTOR: RecordKind = RecordKind::new(Face::Btl, 0);

pub(crate) enum Record {
    Descriptor(NonNull<Descriptor>),
    Operation(NonNull<Operation>),
}

#[inline]
pub(crate) fn descriptor(descriptor: &Owned<Descriptor>) -> Token {
    DESCRIPTOR.token(descriptor.as_ptr(), 0)
}

/// Returns the token of a put, a get or an atomic. A watched one has a number other than 0, so it is not soon reused.
#[inline]
pub(crate) fn operation(operation: &Owned<Operation>, number: u16) -> Token {
    OPERATION.token(operation.as_ptr(), number)
}

/// Returns the record of a token; `None` for the PML's, and for 0, which the engine never gives back.
#[inline]
pub(crate) fn record(token: Token) -> Option<Record> {
    match RecordKind::of(token) {
        DESCRIPTOR => token::record(token).map(Record::Descriptor),
        OPERATION => token::record(token).map(Record::Operation),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btl::one_sided::operation::Operations;

    #[test]
    fn a_token_of_the_pml_names_no_record_of_the_btl() {
        let taken = Operations::new().take();
        for kind in [0, 1] {
            assert!(record(RecordKind::new(Face::Pml, kind).token(taken.as_ptr(), 0)).is_none());
        }
    }
}
