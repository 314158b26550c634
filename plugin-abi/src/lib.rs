// SPDX-License-Identifier: MIT OR Apache-2.0
//! What calls ibex: `libibex.so`, the components that a stock Open MPI loads.
//!
//! Open MPI's BTL interface (`opal/mca/btl/btl.h`, version 3.1.0) on one side, the engine (`engine`, which knows no MPI)
//! on the other. The files carry Open MPI's nouns: `component` (once per process), `module` (one per port), `procs` and
//! `modex` (who is there), `descriptor`, `send`, `rdma`, `atomic` (the data path), `stock` (their records), `memory` (registrations), `progress`
//! (completions and what arrived), `failures` (what is said before an error is handed on), `detour` (messages that another port carries), `tool` (what tools call), `watch` (what sites do while a tool
//! listens), `variables` (parameters and counters), `refusal` (the reasons not to take part),
//! `copies` (whether another libibex.so is in the process).
//!
//! Safety, for every unsafe block below: **M1** a module pointer that Open MPI hands in is one that `btl_init` returned and
//! that `btl_finalize` has not yet been called for; **M2** a descriptor handed in came from that module's `btl_alloc` or
//! `btl_prepare_src` and has not been freed; **M3** buffers handed in stay valid and unmoved until the operation's callback
//! (`btl.h`, the descriptions of the function types). And of the adapter: **R1** no Rust reference to bytes an adapter may
//! touch; **R2** they belong to the device from post to completion; **R3** a registration outlives every work request
//! naming it.
//!
//! Threads: Open MPI calls from one thread at a time unless `MPI_THREAD_MULTIPLE` was asked for; see `exclusive`.

mod atomic;
mod component;
mod copies;
mod descriptor;
mod detour;
mod endpoint;
mod exclusive;
mod failures;
mod guard;
mod memory;
mod messages;
mod modex;
mod module;
mod own_memory;
mod procs;
mod progress;
mod rdma;
mod refusal;
mod send;
mod stock;
mod token;
mod tool;
mod variables;
mod watch;
