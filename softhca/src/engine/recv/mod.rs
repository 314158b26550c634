// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receive queues: `queue` in shared memory, `srq` for a shared one as a program holds it, `xrc` for XRC connections.

pub(crate) mod queue;
pub(crate) mod srq;
pub(crate) mod xrc;

pub(crate) use queue::RecvQueue;
