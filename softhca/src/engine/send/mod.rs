// SPDX-License-Identifier: MIT OR Apache-2.0
//! Send requests: `post`, `queue` (those that wait, in shared memory), `execution` (to completion), `retry`.

pub(crate) mod execution;
pub(crate) mod post;
pub(crate) mod queue;
pub(crate) mod retry;
