// SPDX-License-Identifier: MIT OR Apache-2.0
//! The address handles of this process that exist, of adapters that look a handle up when they send.
//!
//! Called by: `adapter::ah` (creation, destruction), datagram (looks one up). Grade: hot for such adapters, else never
//! called. Thread rule: any thread; its own mutex.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

/// By their numbers.
#[derive(Default)]
pub(crate) struct AddressHandles(Mutex<HashSet<u32>>);

impl AddressHandles {
    pub(crate) fn enter(&self, handle: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(handle);
    }

    pub(crate) fn leave(&self, handle: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle);
    }

    /// Whether the handle that a send names still exists; 0 names none.
    pub(crate) fn has(&self, handle: u32) -> bool {
        handle == 0 || self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&handle)
    }
}
