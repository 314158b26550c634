// SPDX-License-Identifier: MIT OR Apache-2.0
//! State and functions that exist once per process and are used by both components of ibex, `btl` and `pml`.
//!
//! `ports` opens ports once, and `port` is one of them, of the adapter that `device` names. `token` tells which component
//! a request or a message belongs to. `poller` tells which component polls, and delivers to the other its completions,
//! in a `frame` or, for completed operations, in an `operation_chain`. `memory` registers memory; `modex` publishes
//! ports; `failures` prints the reason of a failure before Open MPI gets its code; `messages` has the texts for users;
//! `refusal` and `copies` the reasons not to take part: another Open MPI, another libibex.so in the process. `variables`
//! has parameters and counters; `component` the common parts of component structures. `guard` keeps panics out of C;
//! `exclusive` admits one caller at a time; `free_list` keeps records; `idle` runs Open MPI's progress during waits;
//! `watch` has the calls needed while a tool listens, `listeners` the listeners to events of requests and messages.
//! Nothing here depends on `btl`, `pml` or `tool`.

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
