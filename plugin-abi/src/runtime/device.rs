// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the ports of this process are made of: libibverbs, and Open MPI's cache of registrations. In unit tests the
//! `fabric` stands in for both.
//!
//! Used by whoever names a port. Plain names: it costs nothing. Threads: any.

use engine::transport::{self, adapter::verbs::Verbs};

use super::memory;

#[cfg(test)]
pub(crate) mod fabric;

#[cfg(not(test))]
pub(crate) use memory::Memory;

#[cfg(test)]
pub(crate) use fabric::Memory;

#[cfg(not(test))]
type Adapter = Verbs;

#[cfg(test)]
type Adapter = fabric::Adapter;

/// A port of this process.
pub(crate) type Port = transport::Port<Adapter>;

/// A port that was opened, and its registrations.
#[cfg(not(test))]
pub(super) fn opened(port: transport::Port<Verbs>, memory: memory::Memory) -> (Port, Memory) {
    (port, memory)
}

/// A port that was opened, and its registrations.
#[cfg(test)]
pub(super) fn opened(_: transport::Port<Verbs>, _: memory::Memory) -> (Port, Memory) {
    unreachable!("unit tests have no device")
}
