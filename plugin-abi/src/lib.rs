// SPDX-License-Identifier: MIT OR Apache-2.0
//! What calls ibex: `libibex.so`, the components that a stock Open MPI loads.
//!
//! Open MPI's interfaces on one side, the engine (`engine`, which knows no MPI) on the other. `runtime` is what the
//! process has once: open ports, registrations, parameters, messages to the user. `btl` is a face, a component made of
//! it: the byte transfer layer for ob1 and osc/rdma (`opal/mca/btl/btl.h`). `pml` is another: MPI's
//! messages themselves (`ompi/mca/pml/pml.h`). `tool` is what tools call. A face uses the runtime and
//! never another face; the runtime knows none of them. No file depends on one that depends on it.
//!
//! Safety, for every unsafe block below: **M1** a module pointer that Open MPI hands in is one that `btl_init` returned
//! and that `btl_finalize` has not yet been called for; **M2** a descriptor handed in came from that module's
//! `btl_alloc` or `btl_prepare_src` and has not been freed; **M3** buffers handed in stay valid and unmoved until the
//! operation's callback (`btl.h`, the descriptions of the function types). And of the adapter: **R1** no Rust reference
//! to bytes an adapter may touch; **R2** they belong to the device from post to completion; **R3** a registration
//! outlives every work request naming it.
//!
//! Threads: Open MPI calls from one thread at a time unless `MPI_THREAD_MULTIPLE` was asked for; see
//! `runtime/exclusive.rs`.

mod btl;
mod pml;
mod runtime;
mod tool;
