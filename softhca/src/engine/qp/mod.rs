// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue pairs. In shared memory: `shared` (one of them), `inbox` (messages that wait for its poll), `table` (all of
//! them), `multicast` (their groups). As a program holds one: `object`, with `capabilities` (what it is made from),
//! `lifetime` (made, destroyed), `modify` and `transitions` (its states), `purge` (completions it leaves). `error`
//! stops one.

pub(crate) mod capabilities;
pub(crate) mod error;
pub(crate) mod inbox;
mod lifetime;
mod modify;
pub(crate) mod multicast;
pub(crate) mod object;
mod purge;
pub(crate) mod shared;
pub(crate) mod table;
mod transitions;
