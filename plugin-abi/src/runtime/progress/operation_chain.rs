// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completed operations of the BTL (puts, gets, atomics), as a chain of their records. A poll (`btl/progress.rs`,
//! `pml/progress.rs`) adds an operation as soon as it finds its completion; `btl/completion.rs` notifies Open MPI when
//! no port is entered. So an operation costs the poll two stores and no entry in a batch. The batch has the operations
//! that failed, and those that a tool watches. Grade: hot. Threads: the one that entered the port or PML. Tests: below.

use std::ptr::{NonNull, null_mut};

use engine::events;
use engine::transport::{Immediate, ReceivedMessage, TakesMessages, TakesRequests, Token};

use super::token;
use crate::runtime::free_list::Owned;

/// First field of an operation's record.
#[repr(C)]
pub(crate) struct Link {
    next: *mut Link,
}

pub(crate) struct OperationChain {
    first: *mut Link,
    /// Last record; unused while the chain is empty.
    last: *mut Link,
}

// SAFETY: the records in a chain belong to it alone, and any thread may notify Open MPI of them.
unsafe impl Send for OperationChain {}

impl OperationChain {
    pub(crate) const EMPTY: OperationChain = OperationChain { first: null_mut(), last: null_mut() };

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    #[inline]
    pub(crate) fn take(&mut self) -> OperationChain {
        OperationChain { first: std::mem::replace(&mut self.first, null_mut()), last: self.last }
    }

    #[inline]
    fn push(&mut self, mut record: Owned<Link>) {
        record.next = null_mut();
        let record = record.as_ptr();
        if self.first.is_null() {
            self.first = record;
        } else {
            // SAFETY: the last record is in the chain, so it belongs to the chain alone.
            unsafe { (*self.last).next = record };
        }
        self.last = record;
    }

    /// Returns the addresses of the records, in the order of their completions.
    #[inline]
    pub(crate) fn links(&self) -> impl Iterator<Item = NonNull<Link>> + use<> {
        // SAFETY: the record is in the chain, so `push` has written its link.
        std::iter::successors(NonNull::new(self.first), |link| NonNull::new(unsafe { link.as_ref() }.next))
    }

    /// [`Self::links`] of a chain that ends: the records are the caller's.
    #[inline]
    pub(crate) fn into_links(self) -> impl Iterator<Item = NonNull<Link>> {
        self.links()
    }
}

impl TakesRequests for OperationChain {
    #[inline(always)]
    fn takes_request(&mut self, token: Token) -> bool {
        if !(token::is_operation(token) && events::is_idle()) {
            return false;
        }
        let Some(record) = token::record(token) else { return false };
        // SAFETY: the token is an operation's, whose record begins with a link (`btl/one_sided/operation.rs`); the
        // engine gives it back once, so nobody else has the record.
        self.push(unsafe { Owned::new(record) });
        true
    }
}

impl TakesMessages for &mut OperationChain {
    type Requests = OperationChain;

    #[inline(always)]
    fn takes(&mut self, _: &ReceivedMessage, _: Immediate) -> bool {
        false
    }

    #[inline(always)]
    fn requests(&mut self) -> &mut OperationChain {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::token::{Face, OPERATION, RecordKind};

    /// Aligned as an operation's record.
    #[repr(C, align(16))]
    struct Record(Link);

    fn record() -> NonNull<Record> {
        NonNull::from(Box::leak(Box::new(Record(Link { next: null_mut() }))))
    }

    #[test]
    fn a_chain_returns_operations_in_the_order_of_their_completions() {
        let records = [record(), record(), record()];
        let mut chain = OperationChain::EMPTY;
        for taken in [1, 2] {
            for record in records {
                assert!(chain.takes_request(OPERATION.token(record.as_ptr(), 0)), "{taken}");
            }
            let all = chain.take();
            assert!(chain.is_empty() && all.links().eq(records.map(NonNull::cast)));
        }
        for record in records {
            // SAFETY: leaked above, and in no chain any more.
            drop(unsafe { Box::from_raw(record.as_ptr()) });
        }
    }

    #[test]
    fn a_chain_leaves_watched_operations_and_other_records_to_the_batch() {
        let record = record();
        let mut chain = OperationChain::EMPTY;
        let others = [RecordKind::new(Face::Btl, 0), RecordKind::new(Face::Pml, 0), RecordKind::new(Face::Pml, 1)];
        assert!(others.iter().all(|kind| !chain.takes_request(kind.token(record.as_ptr(), 0))));
        assert!(!chain.takes_request(OPERATION.token(record.as_ptr(), 7)));
        assert!(!chain.takes_request(Token(0)) && chain.is_empty());
        // SAFETY: leaked above, and in no chain.
        drop(unsafe { Box::from_raw(record.as_ptr()) });
    }
}
