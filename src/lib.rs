// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine of ibex: ports of RDMA adapters, connections to peers, messages, puts, gets and atomics over them.
//!
//! It knows verbs and no MPI, and holds no unsafe code: `ibex-ffi` gives it registered memory, posts and completions as
//! safe types. The plugin (`plugin-abi`) calls it. It calls back where that was asked for: a poll shows messages and
//! finished requests to the caller's handler ([`transport::TakesMessages`]), and [`events`] calls the callbacks of tools.
//!
//! Read in this order: [`select`] (which ports are used), [`transport`] (what is done with them), then [`connect`] (how
//! two processes agree on a connection); [`events`] (what tools are shown) stands beside. [`matching`] and [`protocol`]
//! make MPI's messages of the transport's: which receive takes which, and how their bytes travel.
#![forbid(unsafe_code)]

pub mod connect;
pub mod counters;
pub mod events;
pub mod flight;
pub mod fork;
pub mod interfaces;
pub mod limits;
pub mod matching;
pub mod peer;
pub mod protocol;
pub mod select;
pub mod transport;
pub mod tunables;
