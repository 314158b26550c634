// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress: which component polls, and how completions reach the other one.
//!
//! `poller` decides which component polls the ports, and delivers to the other its completions, in a `frame` or an
//! `operation_chain`. `token` says to which component a request or a message belongs. `idle` runs Open MPI's progress
//! during waits.

pub(crate) mod frame;
pub(crate) mod idle;
pub(crate) mod operation_chain;
pub(crate) mod poller;
pub(crate) mod token;
