// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delivery: takes an event to the callbacks of its registrations, at once in the thread that raises it (`thread.rs`; a
//! matching event: `direct.rs`), or later from a thread, a port or a buffer (`deliver.rs`, `drain.rs`). Called by
//! `raise.rs`, by progress, and in a tool's own call. Grade: hot while a tool listens. Threads: any.

pub(super) mod deliver;
pub(super) mod direct;
pub(super) mod drain;
pub(super) mod quiescence;
pub(super) mod thread;
