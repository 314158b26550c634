// SPDX-License-Identifier: MIT OR Apache-2.0
//! One-sided operations: puts, gets and atomics, the record that each has until it completes, and the flush that waits
//! for them. Called by Open MPI (osc/rdma; ob1 for its rendezvous), and by `completion` and `module` for the records.
//! Grade: hot; atomics by messages: pending. Threads: any; each call enters the port.

pub(super) mod atomic;
mod atomic_message;
pub(super) mod emulated_atomic;
pub(super) mod flush;
pub(super) mod operation;
pub(super) mod rdma;
