// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ports that a script has changed, as they are now: LIDs, GIDs and partition keys.
//!
//! Every process has its own. Called by: fabric (asks for a port), `faults::timeline` (changes one). Grade: pending;
//! a fabric in which nothing has changed pays one predicted branch. Thread rule: any thread.

use std::sync::{
    PoisonError, RwLock,
    atomic::{AtomicBool, Ordering},
};

use crate::engine::{
    memory::layout::{MAX_DEVICES, MAX_PORTS},
    spec::device::PortSpec,
};

/// The ports that have changed. A former description stays where it is, as somebody may be looking at it: changes are
/// few.
#[derive(Default)]
pub(crate) struct ChangedPorts {
    /// Whether any port has.
    have_changed: AtomicBool,
    ports: RwLock<[[Option<&'static PortSpec>; MAX_PORTS]; MAX_DEVICES]>,
}

impl ChangedPorts {
    /// Whether any port has changed.
    #[inline]
    pub(crate) fn have_changed(&self) -> bool {
        self.have_changed.load(Ordering::Relaxed)
    }

    /// A port of an adapter (both from 0), if it has changed.
    #[inline]
    pub(super) fn get(&self, device: usize, port: usize) -> Option<&'static PortSpec> {
        if !self.have_changed() {
            return None;
        }
        self.ports.read().unwrap_or_else(PoisonError::into_inner)[device][port]
    }

    /// The port is so from now on.
    pub(crate) fn put(&self, device: usize, port: usize, now: PortSpec) {
        let mut ports = self.ports.write().unwrap_or_else(PoisonError::into_inner);
        ports[device][port] = Some(Box::leak(Box::new(now)));
        self.have_changed.store(true, Ordering::Relaxed);
    }
}
