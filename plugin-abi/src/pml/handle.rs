// SPDX-License-Identifier: MIT OR Apache-2.0
//! The name of a request: what the queues, the protocols and the engine's tokens hold of it.
//!
//! Who has entered the PML gets the request by its name ([`super::request::Requests::get`]), one at a time. A name that
//! is used for too long leads to a request that is free or another's, which is a defect, but never to other memory.
//! Grade: hot. Threads: any. Tests: those of the files that use it.

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
