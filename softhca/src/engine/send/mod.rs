// SPDX-License-Identifier: MIT OR Apache-2.0
//! Send requests: `post` (as they come from the C side), `queue` (those that wait, in shared memory), `execution` (on
//! the wire, to their completion) and `retry` (of those that wait).

pub(crate) mod execution;
pub(crate) mod post;
pub(crate) mod queue;
pub(crate) mod retry;
