// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handle of a request, which queues, protocols and the engine's tokens store.
//!
//! The thread that has entered the PML gets the request from the state ([`super::request::Requests::get`]), one at a
//! time. A handle that is used after its request was given back is a defect: it leads to a free request or to another
//! use of it, but never to other memory. Grade: hot. Threads: any. Tests: those of the files that use it.

use std::ptr::NonNull;

use super::request::Request;

/// Names a request of the PML.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub(crate) struct Handle(NonNull<Request>);

impl Handle {
    /// # Safety
    /// P1: a request of `State::requests`.
    #[inline(always)]
    pub(crate) const unsafe fn new(request: NonNull<Request>) -> Self {
        Handle(request)
    }

    /// Returns the address, for Open MPI and for tokens.
    #[inline(always)]
    pub(crate) const fn pointer(self) -> NonNull<Request> {
        self.0
    }
}
