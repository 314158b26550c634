// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many processes that send messages by ibex's engine, over a simulated network, in virtual time, all from one seed.
//!
//! Each process has the engine's transport, handshake and messenger as they are shipped. The adapters
//! (`ibex::transport::adapter::simulated`) and their memory ([`memory`]) are simulated, and a host of the messenger
//! ([`process`]) takes the place of the PML; or ([`libfabric`]) the provider's endpoints do as libfabric says. A seed
//! gives a random [`program`], and the schedule by which its [`world`] runs it: the history ([`history`]) of a seed is
//! the same on every run and machine. The result is checked against a [`model`] of MPI's matching. [`shrink`] makes a
//! failing program small. Not shipped; called by `cargo xtask simulate` (`main.rs`) and by the tests below. No unsafe
//! code.

#![forbid(unsafe_code)]

mod failure;
mod history;
pub mod libfabric;
mod memory;
pub mod model;
mod process;
pub mod program;
pub mod random;
mod recorder;
pub mod scale;
mod schedule;
pub mod shrink;
#[cfg(test)]
mod tests;
mod world;

pub use failure::{Failure, silence_panics};
pub use program::{Operation, Program};

use std::error::Error;
use std::path::Path;

use schedule::Scheduled;
use world::World;

/// What a run of a program did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Hash of its history.
    pub history: u64,
    /// Number of steps of its history.
    pub steps: u64,
}

/// Runs a program.
///
/// # Errors
/// The check that failed.
pub fn run(program: &Program) -> Result<Report, Failure> {
    outcome(World::new(program))
}

/// Runs a program, and writes its trace to a folder, which has none yet. Returns what came of the run, and of the
/// trace.
pub fn record(program: &Program, folder: &Path) -> (Result<Report, Failure>, Result<(), Box<dyn Error>>) {
    let mut world = World::new(program);
    let trace = world.record();
    let outcome = outcome(world);
    let written = trace.write(folder, outcome.as_ref().err());
    (outcome, written)
}

/// Runs the program of a world.
fn outcome<W: Scheduled>(mut world: W) -> Result<Report, Failure> {
    match failure::caught(|| world.run()) {
        Ok(()) => {
            let history = &world.schedule().history;
            Ok(Report { history: history.hash(), steps: history.count })
        }
        Err(what) => {
            let connections = failure::caught(|| world.describe()).unwrap_or_default();
            let steps = world.schedule().history.last().map(|step| format!("{step:?}")).collect();
            // Its destructors could fail again.
            std::mem::forget(world);
            Err(Failure { what, steps, connections })
        }
    }
}

/// Runs a program, for a test of a shrunk one.
///
/// # Panics
/// If a check fails.
pub fn check(program: &Program) -> Report {
    run(program).unwrap_or_else(|failure| panic!("{failure}"))
}
