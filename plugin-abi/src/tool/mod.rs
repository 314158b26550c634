// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool interface: the functions that a tool calls which links `-libex`, in the terms of MPI's documents.
//!
//! Thin translations of the event engine (`engine::events`): `mpi_t` (the events of MPI 4.1's tool information
//! interface), with `registration` (callbacks), `instance` (what they are given), `matching` (those for what a face
//! raises that does the matching), `handle_numbers`, `arguments` (how results go back), `clocks` (an adapter's time on
//! the host's clock), `require_none` (where callbacks that may do anything are called), and `host` (what is asked of the MPI); `peruse` (PERUSE 2.0), with `communicator` (which MPI says are duplicated or freed). Headers: `include/`. No state of the transport is here, so all of it works
//! before `MPI_Init` and after `MPI_Finalize`, while the tool interface is initialised. Grade and threads: each file
//! says its own. Tests: `tests.rs` (events that fire), `tests/tool.rs` (C programs for every call and every code).

mod arguments;
mod clocks;
mod communicator;
mod ending;
mod handle_numbers;
mod host;
mod instance;
mod matching;
mod mpi_t;
mod peruse;
mod registration;
mod require_none;
#[cfg(test)]
mod tests;

pub(crate) use host::explain_codes;
