// SPDX-License-Identifier: MIT OR Apache-2.0
//! What MPI through ibex gives, beside the raw adapter and beside other transports on the same device.
//!
//! [`Plan::chosen`] says what is measured, [`measure`] does it where a [`Where`] and a [`Nodes`] say, and what comes of
//! it is [`Finished`]. Knows nothing of how the programs were built, or of what the device is part of.
//!
//! `catalogue` says what can be measured and `transport` over what, `plan` what is in which order, `run` does
//! it (`mpi`, `perftest`, `ucx_perftest`, `engine`, `instructions` with `callgrind`, and `host_memory` know the
//! programs), `report` condenses it, `table`, `plot` and `html` show it, `bars` judges it. `events` is what
//! `--events` adds. `job` and `place` are what the caller gives. `available` leaves out what is not there, by what `openmpi`
//! knows of the Open MPI; for a user's machine, `here` runs jobs, and `hosts` reaches two hosts. `study` is another thing
//! that is done with all of it.
//!
//! Grade: setup. Called by `cargo xtask bench` and `ibex bench`. Tests: in each file.

mod available;
mod bars;
mod callgrind;
mod catalogue;
mod engine;
mod events;
mod finished;
mod here;
mod host_memory;
mod hosts;
mod html;
mod instructions;
mod job;
mod mpi;
mod openmpi;
mod perftest;
mod place;
mod plan;
mod plot;
mod processors;
mod progress;
mod ratios;
mod report;
mod run;
#[cfg(feature = "study")]
mod study;
mod table;
mod transport;
mod ucx_perftest;

pub use available::{available, available_beside_ibex};
pub use catalogue::test_names;
pub use events::rate;
pub use finished::{Finished, measure};
pub use here::Here;
pub use hosts::{Hosts, is_here, of_allocation};
pub use job::{Job, Nodes, Outcome, Stream};
pub use place::Where;
pub use plan::{Kind, Plan, Wanted};
pub use processors::pair;
pub use report::quantile;
#[cfg(feature = "study")]
pub use study::{Extent, Study, study};
pub use transport::{Transport, is_in_path};
