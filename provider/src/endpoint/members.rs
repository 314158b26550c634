// SPDX-License-Identifier: MIT OR Apache-2.0
//! The endpoints that are bound to an object, so that it can reach them. Binding adds an endpoint, and closing the
//! endpoint removes it. Grade: hot. Threads: the one inside the domain. Tests: `tests/`.

use std::sync::Arc;

use super::Endpoint;
use crate::domain::lock::{Guarded, Inside};
use crate::sys;

#[derive(Default)]
pub(crate) struct Members(Guarded<Vec<Arc<Endpoint>>>);

impl Members {
    pub(super) fn add(&self, _: &mut Inside<'_>, endpoint: &Arc<Endpoint>) {
        // SAFETY: D1: the caller is inside, here and below. No endpoint comes back to here.
        let members = unsafe { self.0.get() };
        if !members.iter().any(|member| Arc::ptr_eq(member, endpoint)) {
            members.push(Arc::clone(endpoint));
        }
    }

    pub(super) fn remove(&self, _: &mut Inside<'_>, endpoint: &Arc<Endpoint>) {
        // SAFETY: D1.
        unsafe { self.0.get() }.retain(|member| !Arc::ptr_eq(member, endpoint));
    }

    /// Makes each endpoint progress.
    #[inline(never)]
    pub(crate) fn progress(&self, inside: &mut Inside<'_>) {
        // SAFETY: D1.
        unsafe { self.0.get() }.iter().for_each(|endpoint| endpoint.progress(inside));
    }

    /// [`Self::progress`] off the hot path. Returns the number of the adapter's completions.
    pub(crate) fn poll(&self, inside: &mut Inside<'_>) -> usize {
        // SAFETY: D1.
        unsafe { self.0.get() }.iter().map(|endpoint| endpoint.poll(inside)).sum()
    }

    /// Makes each endpoint progress as far as it can, and wake those who sleep as soon as it can go on.
    pub(crate) fn arm(&self, inside: &mut Inside<'_>) {
        // SAFETY: D1.
        unsafe { self.0.get() }.iter().for_each(|endpoint| endpoint.arm(inside));
    }

    /// Tells each endpoint that this index of its address vector has been removed.
    pub(crate) fn forget(&self, inside: &mut Inside<'_>, index: sys::fi_addr_t) {
        // SAFETY: D1.
        unsafe { self.0.get() }.iter().for_each(|endpoint| endpoint.forget(inside, index));
    }
}
