// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue pairs. In shared memory: `shared` (one), `inbox` (messages that wait for its poll), `table` (all). As a
//! program holds one: `object`, `capabilities` (its sizes), `lifetime` (made, destroyed, reset), `modify` (its states).

pub(crate) mod capabilities;
pub(crate) mod inbox;
mod lifetime;
mod modify;
pub(crate) mod object;
pub(crate) mod shared;
pub(crate) mod table;

pub(crate) use shared::{QpShared, fail_later, place};
