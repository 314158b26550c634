// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ports that a script has changed, as they are now: LIDs, GIDs and partition keys.
//!
//! Every process has its own. Called by: fabric (asks for a port), `faults::port_change` (changes one). Grade: pending;
//! a fabric whose rules change nothing pays one predicted branch. Thread rule: any thread.

use std::sync::{PoisonError, RwLock};

use crate::engine::{
    faults::rule::{FaultAction, FaultRule},
    memory::layout::{MAX_DEVICES, MAX_PORTS},
    spec::device::PortSpec,
};

/// The ports that have changed. A former description stays where it is, as somebody may be looking at it: rules are
/// few.
pub(crate) struct ChangedPorts {
    /// Whether any rule changes one.
    may_change: bool,
    ports: RwLock<[[Option<&'static PortSpec>; MAX_PORTS]; MAX_DEVICES]>,
}

impl ChangedPorts {
    /// None yet, in a fabric with these rules.
    pub(super) fn new(rules: &[FaultRule]) -> ChangedPorts {
        let may_change = rules.iter().any(|rule| matches!(rule.action, FaultAction::Change { .. }));
        ChangedPorts { may_change, ports: RwLock::default() }
    }

    /// Whether any rule changes a port.
    #[inline]
    pub(crate) fn may_change(&self) -> bool {
        self.may_change
    }

    /// A port of an adapter (both from 0), if it has changed.
    #[inline]
    pub(super) fn get(&self, device: usize, port: usize) -> Option<&'static PortSpec> {
        if !self.may_change {
            return None;
        }
        self.ports.read().unwrap_or_else(PoisonError::into_inner)[device][port]
    }

    /// The port is so from now on.
    pub(crate) fn put(&self, device: usize, port: usize, now: PortSpec) {
        let mut ports = self.ports.write().unwrap_or_else(PoisonError::into_inner);
        ports[device][port] = Some(Box::leak(Box::new(now)));
    }
}
