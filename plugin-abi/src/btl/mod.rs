// SPDX-License-Identifier: MIT OR Apache-2.0
//! The BTL: the face for ob1 and osc/rdma, by Open MPI's `opal/mca/btl/btl.h`.
//!
//! The files carry Open MPI's nouns: `component` (once per process; its modules are made) and `settings` (what the user
//! set, and what of it is refused); `module` (one per port, and all of them) and `functions` (what Open MPI
//! calls in one); `procs` and `endpoint` (peers); `descriptor`, `send`, `rdma`, `atomic`, `flush` (the data path), `operation` (its
//! record), `token` (how the engine names those), `emulated_atomic` and `atomic_message` (atomics over an adapter that has
//! none); `progress` and `completion` (what has happened), `failures` (what has failed), `detour` (messages that another
//! port carries), `watch` (what sites do while a tool listens).

mod atomic;
mod atomic_message;
mod completion;
mod component;
mod descriptor;
mod detour;
mod emulated_atomic;
mod endpoint;
mod failures;
mod flush;
mod functions;
mod module;
mod operation;
mod procs;
mod progress;
mod rdma;
mod send;
mod settings;
mod token;
mod watch;
