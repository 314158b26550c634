// SPDX-License-Identifier: MIT OR Apache-2.0
//! What MPI through ibex gives, beside the raw adapter and beside other transports on the same device.
//!
//! [`Plan::chosen`] says what is measured; a [`Report`] is what comes of it where a [`Where`] and a [`Nodes`] say. Knows
//! nothing of how the programs were built, or of what the device is part of.
//!
//! In the order in which data flow: `catalogue` says what can be measured, over what, on what; `nodes` where it runs;
//! `programs` knows those that measure; `plan` says which of them start in which order, `run` starts them, `report`
//! condenses what they found, `text` shows it, in `numbers` as a reader writes them. `spread` says whether the rounds of a
//! row agree. `study` is another thing that is done with the programs.
//!
//! Grade: setup. Called by `cargo xtask bench` and `ibex bench`. Tests: in each file.

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

pub use catalogue::{Kind, Transport};
pub use nodes::{Here, Hosts, Job, Nodes, Outcome, Stream, Where, is_here, is_in_path, of_allocation, pair};
pub use numbers::size;
pub use plan::Plan;
pub use plan::available::available;
pub use plan::wanted::Wanted;
pub use programs::event_counts::Counts;
pub use report::events::{Cost, Message, NamedCounts, Ratio};
pub use report::{Report, Row};
pub use run::found::SMALL_BUFFER;
#[cfg(feature = "study")]
pub use study::{Extent, Study, study};
