// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interface of ibex: `libibex.so`, with the components that a stock Open MPI loads, and the functions for tools.
//! ARCHITECTURE.md describes the folders. Components use `runtime` and not each other; `runtime` depends on none of
//! them. Threads: one at a time, unless the program requested `MPI_THREAD_MULTIPLE`; see `runtime/exclusive.rs`.
//!
//! Safety, for every unsafe block below: **M1** a module pointer from Open MPI was returned by `btl_init`, and
//! `btl_finalize` has not been called for it; **M2** a descriptor from Open MPI was returned by `btl_alloc` or
//! `btl_prepare_src` of that module, and has not been freed; **M3** buffers from Open MPI stay valid and unmoved until
//! the operation's callback (`btl.h`, the descriptions of the function types); **M4** the other arguments of a function
//! that Open MPI calls are valid as its headers and MPI require. An argument of an entry point that is a `&Module` or
//! an `Owned<Descriptor>` is so by M1 or M2 (`runtime/entry.rs`). About the adapter: **R1** no Rust reference exists to
//! bytes that an adapter may access; **R2** these bytes belong to the device from post to completion; **R3** a
//! registration outlives every work request that names it. `pml` adds P1 to P3, `runtime/listeners` N1 to N4.

mod btl;
mod pml;
mod runtime;
mod tool;
