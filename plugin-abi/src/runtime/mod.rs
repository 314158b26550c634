// SPDX-License-Identifier: MIT OR Apache-2.0
//! State and functions that exist once per process and that both `btl` and `pml` use. Nothing here depends on them.
//!
//! `ports` opens each `port` once; `device` names its adapter, `memory` registers memory, `modex` publishes ports.
//! `token` tells which component a request or a message belongs to; `poller` tells which one polls, and delivers to the
//! other its completions, in a `frame` or an `operation_chain`. `failures` prints the reason of a failure before Open
//! MPI gets its code; `messages` has the texts for users, `refusal` and `copies` the reasons not to take part.
//! `variables` has parameters and counters, `component` the common parts of component structures. `guard` keeps panics
//! out of C, `exclusive` admits one caller at a time, `free_list` keeps records, `idle` runs Open MPI's progress during
//! waits. `watch` and `listeners` serve tools that listen.

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
