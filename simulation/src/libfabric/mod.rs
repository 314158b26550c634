// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of libfabric: each process has an endpoint with the rules of the provider (`ibex::libfabric`), over the
//! same simulated network as those of MPI.
//!
//! `endpoint` and `memory` are what an endpoint stands on, `program` and `generator` make the programs, `world` runs
//! one, and `completions` and `check` judge it, with the model of matching and by the text of `fi_tagged(3)`,
//! `fi_msg(3)`, `fi_cq(3)` and `fi_cntr(3)`. Called by `main` and the tests of the crate. Grade: test. Threads: one per
//! world.

mod check;
mod completions;
mod endpoint;
mod generator;
mod memory;
mod program;
mod shrink;
mod world;

pub use ibex::libfabric::Kind;
pub use program::{Found, How, Operation, Program};

use crate::{Failure, Report, outcome};
use world::World;

/// Runs a program.
///
/// # Errors
/// The check that failed.
pub fn run(program: &Program) -> Result<Report, Failure> {
    outcome(World::new(program))
}

/// Runs a program, for a test of a shrunk one.
///
/// # Panics
/// If a check fails.
pub fn check(program: &Program) -> Report {
    run(program).unwrap_or_else(|failure| panic!("{failure}"))
}
