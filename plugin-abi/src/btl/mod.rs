// SPDX-License-Identifier: MIT OR Apache-2.0
//! The BTL: the component for ob1 and osc/rdma, by Open MPI's `opal/mca/btl/btl.h`. `component` (once per process)
//! makes the modules, `settings` checks the user's parameters; `module` is one per port, and `functions` its function
//! table; `procs` and `endpoint` are about peers. The data path is `descriptor`, `send`, `rdma`, `atomic` and `flush`;
//! `operation` is the record of a put, get or atomic; `token` names records for the engine. `emulated_atomic` and
//! `atomic_message` are atomics for an adapter without them. `progress` and `completion` process completions,
//! `failures` reports failures, `detour` sends messages through another port, `watch` raises events while a tool
//! listens.

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
