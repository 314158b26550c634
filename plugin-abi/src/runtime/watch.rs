// SPDX-License-Identifier: MIT OR Apache-2.0
//! What any face does while a tool listens, and what tools ask of all faces.
//!
//! What only one face can tell is in that face. Tools' callbacks run in here, so nothing is called while a port is
//! entered, but for [`registered`] and [`evicted`], which deliver nothing. Path: behind the branch of a site. Threads:
//! any.

use engine::events::{self, RegistrationEvict, RegistrationMiss, Safety};

use super::progress;

/// What callbacks must be fit for in a call of Open MPI's: MPI is on the stack.
pub(crate) const SAFETY: Safety = Safety::MpiRestricted;

/// Shows the messages that have arrived whole and were only noted.
pub(crate) fn show_arrived() {
    progress::show_arrived();
}

/// Shows all that has happened: for who is about to stop listening. Not from within a callback.
pub(crate) fn catch_up() {
    show_arrived();
    events::catch_up(SAFETY);
}

/// Memory is registered with the adapter. Open MPI's cache may hold its lock, so that nothing is delivered here.
#[cold]
#[inline(never)]
pub(crate) fn registered(address: u64, bytes: u64, port: u8) {
    events::stage(SAFETY, || RegistrationMiss { address, bytes, port: u32::from(port) });
}

/// A registration is taken back. As [`registered`].
#[cold]
#[inline(never)]
pub(crate) fn evicted(address: u64, bytes: u64, port: u8) {
    events::stage(SAFETY, || RegistrationEvict { address, bytes, port: u32::from(port) });
}
