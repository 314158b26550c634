// SPDX-License-Identifier: MIT OR Apache-2.0
//! `libibex-mpi4.so`: overrides the calls that MPI 4 has added (`MPI_Send_c`, ...), and tells the libfabric provider of
//! them. It is a library of its own because some MPIs lack these calls, and mpi4py takes one that it finds: `ibex
//! trace` preloads it, behind the provider, only for an MPI that has them. Grade: hot. Threads: the application's.
//! Tests: hw-tests/tests/device/provider_tools.rs.

// The provider's `recording/calls.rs` has both. The loader finds them there, because it was loaded before.
unsafe extern "C" {
    safe fn ibex_mpi_call_begins(call: u64) -> u64;
    safe fn ibex_mpi_call_ends(call: u64, number: u64);
}

/// A call, until it is dropped: its index and its number.
struct Within(u64, u64);

fn enter(call: u64) -> Within {
    Within(call, ibex_mpi_call_begins(call))
}

impl Drop for Within {
    fn drop(&mut self) {
        ibex_mpi_call_ends(self.0, self.1);
    }
}

ibex_mpi_calls::override_calls! { mpi_4 by enter }
