// SPDX-License-Identifier: MIT OR Apache-2.0
//! State and functions that exist once per process and are used by both components of ibex, `btl` and `pml`.
//!
//! `ports` opens ports once and `port` is one of them, by what `device` says; `token` names the faces, and says which a
//! request or a message is for; `poller` says which of them polls, and brings the other what is its, in a `frame` or, if it
//! is an operation that is done, in an `operation_chain`. `memory` registers memory; `modex` says who is there; `failures` is what is said before an error is handed on; `messages` what a user is told; `refusal` the
//! reasons not to take part, `copies` one of them: another libibex.so in the process. `variables` has parameters and
//! counters; `component` what the structures of components share. `guard` keeps panics from C, `exclusive` callers from
//! each other; `free_list` keeps records; `idle` is what a wait does while nothing happens; `watch` is what any face does while a tool listens, `listeners` who listens
//! to requests and messages. Knows no face but by name, and no tool.

pub(crate) mod component;
pub(crate) mod copies;
pub(crate) mod device;
pub(crate) mod exclusive;
pub(crate) mod failures;
pub(crate) mod frame;
pub(crate) mod free_list;
pub(crate) mod guard;
pub(crate) mod idle;
pub(crate) mod listeners;
pub(crate) mod memory;
pub(crate) mod messages;
pub(crate) mod modex;
pub(crate) mod operation_chain;
pub(crate) mod poller;
pub(crate) mod port;
pub(crate) mod ports;
pub(crate) mod refusal;
pub(crate) mod token;
pub(crate) mod variables;
pub(crate) mod watch;
