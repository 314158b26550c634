// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations of the BTL's (puts, gets, atomics) that are done: a chain through their records, from the poll that has
//! found them to the BTL, which tells Open MPI when nothing is entered.
//!
//! So one costs whoever polls two stores, and no place in a batch. What did not succeed, and what a tool watches, is
//! reported in the batch as ever. Filled by the polls (`btl/progress.rs`, `pml/progress.rs`), emptied by
//! `btl/completion.rs`. Grade: hot. Threads: who has entered the port. Tests: below.

use std::ptr::{NonNull, null_mut};

use engine::events;
use engine::transport::{Arrived, TakesMessages, TakesRequests, Token};

use super::token;

/// How the record of an operation begins.
#[repr(C)]
pub(crate) struct Link {
    /// The next of the chain.
    next: *mut Link,
}

/// Operations that are done, in order.
pub(crate) struct OperationChain {
    first: *mut Link,
    /// The last; of an empty chain it is not used.
    last: *mut Link,
}

// SAFETY: the records are nobody else's while they are in a chain, and any thread may tell of them.
unsafe impl Send for OperationChain {}

impl OperationChain {
    pub(crate) const EMPTY: OperationChain = OperationChain { first: null_mut(), last: null_mut() };

    /// The first; `None`: it is empty.
    #[inline]
    pub(crate) fn first(&self) -> Option<NonNull<Link>> {
        NonNull::new(self.first)
    }

    /// Whether none is in it.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Takes all that are in it.
    #[inline]
    pub(crate) fn take(&mut self) -> OperationChain {
        OperationChain { first: std::mem::replace(&mut self.first, null_mut()), last: self.last }
    }

    /// # Safety
    /// The record is an operation's, and nobody else's.
    #[inline]
    unsafe fn push(&mut self, record: NonNull<Link>) {
        let record = record.as_ptr();
        // SAFETY: the caller says that the record is an operation's, and nobody else's.
        unsafe { (*record).next = null_mut() };
        if self.first.is_null() {
            self.first = record;
        } else {
            // SAFETY: in the chain, so nobody else's.
            unsafe { (*self.last).next = record };
        }
        self.last = record;
    }
}

impl Link {
    /// The one behind this; `None`: it is the last.
    ///
    /// # Safety
    /// The record is in a chain.
    #[inline]
    pub(crate) unsafe fn next(link: NonNull<Link>) -> Option<NonNull<Link>> {
        // SAFETY: the caller says that the record is in a chain: its link was written by `push`.
        NonNull::new(unsafe { (*link.as_ptr()).next })
    }
}

impl TakesRequests for OperationChain {
    #[inline(always)]
    fn takes_request(&mut self, token: Token) -> bool {
        if !(token::is_operation(token) && events::is_idle()) {
            return false;
        }
        let Some(record) = token::record(token) else { return false };
        // SAFETY: the engine gives a token back once, and this is one of an operation, whose record begins with a link
        // (`btl/operation.rs`).
        unsafe { self.push(record) };
        true
    }
}

/// Takes operations, and no message.
impl TakesMessages for &mut OperationChain {
    type Requests = OperationChain;

    #[inline(always)]
    fn takes(&mut self, _: Arrived) -> bool {
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
    use crate::runtime::token::Face;
    use crate::runtime::token::{OPERATION, RecordKind};

    /// As an operation's record is aligned.
    #[repr(C, align(16))]
    struct Record(Link);

    fn record() -> NonNull<Record> {
        NonNull::from(Box::leak(Box::new(Record(Link { next: null_mut() }))))
    }

    #[test]
    fn operations_come_in_the_order_in_which_they_were_done() {
        let records = [record(), record(), record()];
        let mut chain = OperationChain::EMPTY;
        for taken in [1, 2] {
            for record in records {
                assert!(chain.takes_request(OPERATION.token(record.as_ptr(), 0)), "{taken}");
            }
            let all = chain.take();
            assert!(chain.first().is_none());
            // SAFETY: what is asked for is in the chain.
            let found = std::iter::successors(all.first(), |link| unsafe { Link::next(*link) });
            assert!(found.eq(records.map(NonNull::cast)));
        }
        for record in records {
            // SAFETY: leaked above, and in no chain any more.
            drop(unsafe { Box::from_raw(record.as_ptr()) });
        }
    }

    #[test]
    fn watched_operations_and_other_records_are_left_to_the_batch() {
        let record = record();
        let mut chain = OperationChain::EMPTY;
        let others = [RecordKind::new(Face::Btl, 0), RecordKind::new(Face::Pml, 0), RecordKind::new(Face::Pml, 1)];
        assert!(others.iter().all(|kind| !chain.takes_request(kind.token(record.as_ptr(), 0))));
        assert!(!chain.takes_request(OPERATION.token(record.as_ptr(), 7)));
        assert!(!chain.takes_request(Token(0)) && chain.first().is_none());
        // SAFETY: leaked above, and in no chain.
        drop(unsafe { Box::from_raw(record.as_ptr()) });
    }
}
