// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine of ibex: ports of RDMA adapters, connections to peers, messages, puts, gets and atomics over them.
//!
//! It knows verbs and no MPI, and holds no unsafe code: `ibex-ffi` gives it registered memory, posts and completions as safe
//! types. The plugin (`plugin-abi`) calls it; it calls nobody back.
//!
//! Read in this order: [`port`] (what there is), [`send`] (the way out), [`event`] (what comes back), then `poll.rs` and
//! `endpoint.rs`; for how connections come about [`connect`] and `connecting.rs`; for which ports are used [`device`].
#![forbid(unsafe_code)]

mod admission;
pub mod backlog;
mod bounce;
pub mod connect;
mod connecting;
mod connector;
pub mod counters;

mod divert;
mod endpoint;
pub mod event;
pub mod events;
pub mod failure;

pub mod limits;
pub mod patience;
pub mod peer;
mod poll;
pub mod port;
pub mod posted;
mod probe;
mod receive;
mod room;
pub mod select;
pub mod send;
pub mod tunables;
mod watch;
