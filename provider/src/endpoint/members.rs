// SPDX-License-Identifier: MIT OR Apache-2.0
//! The endpoints that are bound to an object, so that it can reach them. Binding adds an endpoint, and closing the
//! endpoint removes it. Grade: hot. Threads: any. Tests: `tests/`.

use std::sync::Arc;

use parking_lot::Mutex;

use super::Endpoint;
use crate::sys;

#[derive(Default)]
pub(crate) struct Members(Mutex<Vec<Arc<Endpoint>>>);

impl Members {
    pub(super) fn add(&self, endpoint: &Arc<Endpoint>) {
        let mut members = self.0.lock();
        if !members.iter().any(|member| Arc::ptr_eq(member, endpoint)) {
            members.push(Arc::clone(endpoint));
        }
    }

    pub(super) fn remove(&self, endpoint: &Arc<Endpoint>) {
        self.0.lock().retain(|member| !Arc::ptr_eq(member, endpoint));
    }

    /// Makes each endpoint progress. One thread at a time does so.
    #[inline]
    pub(crate) fn progress(&self) {
        self.0.lock().iter().for_each(|endpoint| endpoint.progress());
    }

    /// Makes each endpoint progress as far as it can, and wake those who sleep as soon as it can go on.
    pub(crate) fn arm(&self) {
        self.0.lock().iter().for_each(|endpoint| endpoint.arm());
    }

    /// Tells each endpoint that this index of its address vector has been removed.
    pub(crate) fn forget(&self, index: sys::fi_addr_t) {
        self.0.lock().iter().for_each(|endpoint| endpoint.forget(index));
    }
}
