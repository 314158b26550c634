// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completion queues: `ring` (the queue in shared memory, and what a completion says), and, as a program holds it,
//! `object` and `poll`.

pub(crate) mod object;
pub(crate) mod poll;
pub(crate) mod ring;

pub(crate) use ring::{Completion, CqShared, failed_recv};
