// SPDX-License-Identifier: MIT OR Apache-2.0
//! The record of an RDMA operation under way: what Open MPI wants back in its callback.
//!
//! Records come from a free list of the module; the engine carries the address of one as the token (`token`). Written
//! by `rdma`, read by `completion`. Grade: hot (an empty list grows: pending). Threads: inside the port. Tests: below.

use std::ffi::c_void;
use std::mem::{MaybeUninit, offset_of};
use std::ptr::{NonNull, null_mut};

use ibex_ffi::openmpi::sys;

use super::watch::Watched;
use crate::runtime::free_list::{FreeList, Linked};

/// What Open MPI is told when a put, a get or an atomic is done.
#[repr(align(16))]
pub(crate) struct Operation {
    pub(crate) call: CallbackArguments,
    /// The next on the free list, or on the chain of those to be freed.
    pub(crate) next: *mut Operation,
    /// Present where the call says so.
    pub(crate) watched: MaybeUninit<Watched>,
}

/// What is written for every operation.
#[derive(Clone, Copy)]
pub(crate) struct CallbackArguments {
    pub(crate) callback: sys::mca_btl_base_rdma_completion_fn_t,
    pub(crate) context: *mut c_void,
    pub(crate) data: *mut c_void,
    pub(crate) local_address: *mut c_void,
    pub(crate) local_handle: *mut sys::mca_btl_base_registration_handle_t,
    /// Whether a tool listened when it was started.
    pub(crate) is_watched: bool,
}

// SAFETY: `next` is for free lists and for chains of what is about to be given back. A free record's other pointers are
// not used.
unsafe impl Linked for Operation {
    const NEXT: usize = offset_of!(Operation, next);
}

/// The records of one module.
pub(crate) struct Operations(FreeList<Operation>);

/// Records made at a time.
const GROW_BY: usize = 64;

impl Operations {
    pub(crate) const fn new() -> Self {
        Operations(FreeList::new())
    }

    #[inline]
    pub(crate) fn take(&mut self) -> NonNull<Operation> {
        match self.0.take() {
            Some(free) => free,
            None => self.grow(),
        }
    }

    /// # Safety
    /// The record was taken from here, and no request under way has it as its token.
    #[inline]
    pub(crate) unsafe fn give_back(&mut self, operation: *mut Operation) {
        // SAFETY: this function's own rule.
        unsafe { self.0.give_back(operation) };
    }

    #[cold]
    fn grow(&mut self) -> NonNull<Operation> {
        let call = CallbackArguments {
            callback: None,
            context: null_mut(),
            data: null_mut(),
            local_address: null_mut(),
            local_handle: null_mut(),
            is_watched: false,
        };
        let unused = || Operation { call, next: null_mut(), watched: MaybeUninit::uninit() };
        self.0.add((0..GROW_BY).map(|_| unused()).collect(), |_| {});
        self.0.take().expect("records were added")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_reused_before_more_are_made() {
        let mut operations = Operations::new();
        let first = operations.take();
        // SAFETY: just taken; nothing names it.
        unsafe { operations.give_back(first.as_ptr()) };
        assert_eq!(operations.take(), first);
        assert_eq!(operations.0.blocks(), 1);
    }
}
