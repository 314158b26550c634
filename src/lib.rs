// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine of ibex: ports of RDMA adapters, connections to peers, messages, puts, gets and atomics over them.
//!
//! It knows verbs and no MPI, and has no unsafe code. The plugin (`plugin-abi`) calls it. It calls back in two cases: a
//! poll passes messages and finished requests to the caller's handler ([`transport::TakesMessages`]), and [`events`]
//! calls the callbacks of tools.
//!
//! Read in this order: [`select`] (chooses ports), [`transport`] (uses them), [`connect`] (connects two processes),
//! [`messenger`] (matches messages and moves their bytes), [`libfabric`] (an endpoint over it); [`events`] (reports to
//! tools) is beside them.
#![forbid(unsafe_code)]

pub mod connect;
pub mod counters;
pub mod events;
pub mod flight;
pub mod fork;
pub mod interfaces;
pub mod libfabric;
pub mod limits;
pub mod messenger;
pub mod peer;
pub mod select;
pub mod transport;
pub mod tunables;
