// SPDX-License-Identifier: MIT OR Apache-2.0
//! Send requests: `request` (as it comes from the C side), `queue` (those that wait, in shared memory), `post`,
//! `refusal` (what a wrong one gets), `execution` (on the wire), `retry` (of those that wait) and `completion`.

pub(crate) mod completion;
mod execution;
pub(crate) mod post;
pub(crate) mod queue;
mod refusal;
pub(crate) mod request;
pub(crate) mod retry;
