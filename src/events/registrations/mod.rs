// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registrations: which tool listens to which type, by which callbacks and with which buffer, from
//! [`registry::register`] to the free callback. Called by tools, and by the delivery, which reads the lists and fills
//! and empties the buffers. Grade: hot while a tool listens for the buffer (`ring.rs`), setup for changes. Threads:
//! any.

pub(super) mod free;
pub(super) mod registration;
pub(super) mod registry;
pub(super) mod ring;
