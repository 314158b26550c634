// SPDX-License-Identifier: MIT OR Apache-2.0
//! The record of a put, a get or an atomic until it completes: the arguments of Open MPI's callback. Records come from
//! a free list of the module; the token of a request is the address of one (`token`). Written by `rdma` and
//! `emulated_atomic`, read by `completion`. Grade: hot (an empty list grows: pending). Threads: the one that has
//! entered the port. Tests: below.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr::{NonNull, null_mut};

use ibex_ffi::openmpi::sys;

use crate::btl::module::Module;
use crate::btl::watch::Watched;
use crate::runtime::free_list::{FreeList, Linked, Owned};

#[repr(C, align(16))]
pub(crate) struct Operation {
    /// Next record on the free list, or in an `OperationChain`, which requires it to be the first field.
    next: *mut Operation,
    pub(crate) call: CallbackArguments,
    /// Present if a tool listened when the operation was started.
    pub(crate) watched: Option<Watched>,
}

#[derive(Clone, Copy)]
pub(crate) struct CallbackArguments {
    pub(crate) btl: *mut sys::mca_btl_base_module_t,
    pub(crate) peer: *mut sys::mca_btl_base_endpoint_t,
    pub(crate) callback: sys::mca_btl_base_rdma_completion_fn_t,
    pub(crate) context: *mut c_void,
    pub(crate) data: *mut c_void,
    pub(crate) local_address: *mut c_void,
    pub(crate) local_handle: *mut sys::mca_btl_base_registration_handle_t,
}

// SAFETY: only free lists and chains of records to give back use `next`. A free record's other pointers are not used.
unsafe impl Linked for Operation {
    const NEXT: usize = offset_of!(Operation, next);
}

impl CallbackArguments {
    #[inline]
    pub(crate) fn module<'call>(&self) -> &'call Module {
        // SAFETY: M1: the module of an operation that is not complete.
        unsafe { Module::from_raw(self.btl) }
    }

    /// # Safety
    /// The operation is complete, and its callback has not run.
    #[inline]
    pub(crate) unsafe fn call(&self, status: c_int) {
        let CallbackArguments { btl, peer, callback, context, data, local_address, local_handle } = *self;
        if let Some(function) = callback {
            // SAFETY: the callback and the arguments that Open MPI gave (btl.h, mca_btl_base_rdma_completion_fn_t).
            unsafe { function(btl, peer, local_address, local_handle, context, data, status) };
        }
    }
}

pub(crate) struct Operations {
    records: FreeList<Operation>,
    /// Number of records in use: their operations are not complete, or their callbacks have not finished.
    taken: usize,
}

const GROW_BY: usize = 64;

impl Operations {
    pub(crate) const fn new() -> Self {
        Operations { records: FreeList::new(), taken: 0 }
    }

    #[inline]
    pub(crate) fn are_over(&self) -> bool {
        self.taken == 0
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Owned<Operation> {
        self.taken += 1;
        let record = match self.records.take() {
            Some(free) => free,
            None => self.grow(),
        };
        // SAFETY: it has just been taken from the list, so nobody else uses it.
        unsafe { Owned::new(record) }
    }

    /// # Safety
    /// The record was taken from this list.
    #[inline]
    pub(crate) unsafe fn give_back(&mut self, operation: Owned<Operation>) {
        self.taken -= 1;
        // SAFETY: the caller says that it was taken from this list; nobody else uses it (`Owned`).
        unsafe { self.records.give_back(operation.into_raw()) };
    }

    #[cold]
    fn grow(&mut self) -> NonNull<Operation> {
        let call = CallbackArguments {
            btl: null_mut(),
            peer: null_mut(),
            callback: None,
            context: null_mut(),
            data: null_mut(),
            local_address: null_mut(),
            local_handle: null_mut(),
        };
        let unused = || Operation { call, next: null_mut(), watched: None };
        self.records.add((0..GROW_BY).map(|_| unused()).collect(), |_| {});
        self.records.take().expect("records were added")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_reused_before_more_are_made() {
        let mut operations = Operations::new();
        let first = operations.take();
        let address = first.as_ptr();
        assert!(!operations.are_over());
        // SAFETY: it has just been taken from this list.
        unsafe { operations.give_back(first) };
        assert!(operations.are_over());
        assert_eq!(operations.take().as_ptr(), address);
        assert_eq!(operations.records.blocks(), 1);
    }
}
