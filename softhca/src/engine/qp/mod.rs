// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue pairs. In shared memory: `shared` (one of them), `inbox` (messages that wait for its poll), `table` (all of
//! them). As a program holds one: `object`, with `capabilities` (what it is made from), `lifetime` (made, destroyed,
//! reset) and `modify` (its states).

pub(crate) mod capabilities;
pub(crate) mod inbox;
mod lifetime;
mod modify;
pub(crate) mod object;
pub(crate) mod shared;
pub(crate) mod table;

pub(crate) use shared::{QpShared, fail_later, place};
