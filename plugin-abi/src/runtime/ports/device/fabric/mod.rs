// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fabric of the unit tests: simulated adapters (`engine::transport::adapter::simulated`) over real memory.
//! `memory.rs` has the registrations. Called by `pml/tests/world.rs`. Grade: test. Threads: the test's.

mod memory;

use std::ops::Deref;
use std::time::Duration;

use engine::peer::PeerName;
use engine::transport::adapter::simulated;
use engine::tunables::Tunables;

use super::super::port::OpenPort;

pub(crate) use engine::transport::adapter::simulated::{Adapter, Sizes};
pub(crate) use memory::Memory;
use memory::Registrations;

#[derive(Clone)]
pub(crate) struct Fabric {
    adapters: simulated::Fabric,
    registrations: Registrations,
}

impl Default for Fabric {
    fn default() -> Self {
        let registrations = Registrations::default();
        // With 5 ms, a port asks for asynchronous events each time it reads the clock.
        let adapters = simulated::Fabric::new(Box::new(registrations.clone()), Duration::from_millis(5));
        Fabric { adapters, registrations }
    }
}

impl Deref for Fabric {
    type Target = simulated::Fabric;

    fn deref(&self) -> &simulated::Fabric {
        &self.adapters
    }
}

impl Fabric {
    /// Opens the next port of a process. Ports with the same index are in the same network.
    pub(crate) fn open(&self, me: PeerName, mbps: u32, sizes: Sizes) -> OpenPort {
        let (port, place, index) = self.adapters.open(me, mbps, sizes, &Tunables::default());
        OpenPort::of((port, Memory::new(self.clone(), place)), (sizes.receive, sizes.bounce), index, false)
    }

    pub(crate) fn refuse_memory(&self, port: usize, refuses: bool) {
        self.registrations.refuse(port, refuses);
    }

    /// Number of registrations of all ports, except for those of slots.
    pub(crate) fn registered(&self) -> usize {
        self.registrations.count()
    }
}
