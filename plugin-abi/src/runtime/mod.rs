// SPDX-License-Identifier: MIT OR Apache-2.0
//! State and functions that exist once per process and that both `btl` and `pml` use. Nothing here depends on them.
//!
//! `component` has the common parts of component structures, and the reasons to decline; `variables` has parameters and
//! counters. `ports` opens the ports, registers memory and publishes addresses; `progress` decides which component
//! polls. `failures` prints the reason of a failure before Open MPI gets its code; `messages` has the texts for users.
//! `entry` gives types to C's arguments, `guard` keeps panics out of C, `exclusive` admits one caller at a time,
//! `free_list` keeps records. `libmpi` calls Open MPI, `user_memory` moves bytes to and from the program. `watch` and
//! `listeners` serve tools that listen.

pub(crate) mod component;
pub(crate) mod entry;
pub(crate) mod exclusive;
pub(crate) mod failures;
pub(crate) mod free_list;
pub(crate) mod guard;
pub(crate) mod libmpi;
pub(crate) mod listeners;
pub(crate) mod messages;
pub(crate) mod ports;
pub(crate) mod progress;
pub(crate) mod user_memory;
pub(crate) mod variables;
pub(crate) mod watch;

pub(crate) use component::{copies, refusal};
pub(crate) use ports::{device, memory, modex, port, shared_memory};
pub(crate) use progress::{frame, idle, operation_chain, poller, token};
