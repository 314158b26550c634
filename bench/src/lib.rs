// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures MPI through ibex beside the raw adapter and other transports on the same device. Called by `cargo xtask
//! bench` and `ibex bench`, which give the place ([`Where`]) and run the jobs ([`Nodes`]).
//!
//! In the order of the data: `catalogue` has the tests and transports, `nodes` runs jobs, `programs` has the command
//! lines of the programs and reads their output. `plan` chooses the programs to start, `run` starts them, `report`
//! summarises their values, and `text` writes the tables; `spread` decides whether the rounds of a row agree. `study`
//! uses the programs for the experiments of two papers. Grade: setup. Tests: in each file.

mod catalogue;
mod nodes;
mod numbers;
mod plan;
mod programs;
mod report;
mod run;
mod spread;
#[cfg(feature = "study")]
mod study;
mod text;

pub use catalogue::{Family, Kind, Mpi, Stock, Transport};
pub use nodes::{Here, Hosts, Job, Nodes, Outcome, Stream, Where, is_here, is_in_path, of_allocation, pair};
pub use numbers::size;
pub use plan::Plan;
pub use plan::available::{available, refuse_missing};
pub use plan::wanted::Wanted;
pub use programs::event_counts::Counts;
pub use report::events::{Cost, Message, NamedCounts, Ratio};
pub use report::{Report, Row};
pub use run::found::SMALL_BUFFER;
#[cfg(feature = "study")]
pub use study::{Extent, Study, study};
