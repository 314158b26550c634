// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receive queues: `queue` (the requests in shared memory, a queue pair's own or shared), `srq` (a shared one as a
//! program holds it), `xrc` (those that XRC connections reach).

pub(crate) mod queue;
pub(crate) mod srq;
pub(crate) mod xrc;

pub(crate) use queue::RecvQueue;
