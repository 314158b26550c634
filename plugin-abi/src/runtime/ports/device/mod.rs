// SPDX-License-Identifier: MIT OR Apache-2.0
//! Type names for the ports of this process: over libibverbs, with Open MPI's cache of registrations. In unit tests
//! `fabric` replaces both. Used by all modules that name a port. Grade: setup (only types). Threads: any.

use engine::transport::{self, adapter::verbs::Verbs};

use super::memory;

#[cfg(test)]
pub(crate) mod fabric;

#[cfg(not(test))]
pub(crate) use memory::Memory;

#[cfg(test)]
pub(crate) use fabric::Memory;

#[cfg(not(test))]
pub(crate) type Adapter = Verbs;

#[cfg(test)]
pub(crate) type Adapter = fabric::Adapter;

pub(crate) type Port = transport::Port<Adapter>;

#[cfg(not(test))]
pub(super) fn opened(port: transport::Port<Verbs>, memory: memory::Memory) -> (Port, Memory) {
    (port, memory)
}

/// Never called: unit tests open no device.
#[cfg(test)]
pub(super) fn opened(_: transport::Port<Verbs>, _: memory::Memory) -> (Port, Memory) {
    unreachable!("unit tests have no device")
}
