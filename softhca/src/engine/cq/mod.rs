// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completion queues: `ring` is the queue in shared memory; `object` and `poll` are the queue as a program holds it.

pub(crate) mod object;
pub(crate) mod poll;
pub(crate) mod ring;

pub(crate) use ring::{Completion, CqShared, failed_recv};
