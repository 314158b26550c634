// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completion queues: `completion` (what is said), `ring` (the queue in shared memory), `delivery` (a payload goes to
//! the memory of its receive), `purge` (completions that nobody is to see), and, as a program holds it, `object` and
//! `poll`.

pub(crate) mod completion;
pub(crate) mod delivery;
pub(crate) mod object;
pub(crate) mod poll;
pub(crate) mod purge;
pub(crate) mod ring;
