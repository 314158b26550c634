// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool interface: the functions for tools that link `-libex`, in the terms of MPI's documents.
//!
//! They translate to the event engine (`engine::events`). `mpi_t` has the events of MPI 4.1's tool information
//! interface, `peruse` has PERUSE 2.0. Both use `handle_numbers`, `arguments` (strings and arrays of C), `host` (calls
//! of the MPI) and `communicator` (communicators, and when they are duplicated or freed). `ending` closes the flight
//! recorder. Headers: `include/`. All of it works before `MPI_Init` and
//! after `MPI_Finalize`, while the tool interface is initialised. Tests: `tests` (events that fire), `tests/tool.rs`
//! (C programs for every call and every code).

mod arguments;
mod communicator;
mod ending;
mod handle_numbers;
mod host;
mod mpi_t;
mod peruse;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use host::explain_codes;
pub(crate) use mpi_t::keep_alone;
