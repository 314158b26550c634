// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two-sided operations: messages, the descriptors in which Open MPI builds them, and their detour through another
//! port. Called by Open MPI, by emulated atomics, and by `completion` and `failures` for messages that failed. Grade:
//! hot; a message that waits or takes a detour: pending. Threads: any; each call enters the port.

pub(super) mod descriptor;
pub(super) mod detour;
pub(super) mod send;
