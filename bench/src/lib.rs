// SPDX-License-Identifier: MIT OR Apache-2.0
//! What MPI through ibex gives, beside the raw adapter and beside other transports on the same device.
//!
//! [`Plan::chosen`] says what is measured, [`measure`] does it where a [`Where`] and a [`Nodes`] say, and what comes of
//! it is [`Finished`]. Knows nothing of how the programs were built, or of what the device is part of.
//!
//! In the order in which data flow: `catalogue` says what can be measured, over what, on what; `nodes` where it runs;
//! `programs` knows those that measure; `plan` says which of them start in which order, `run` starts them, `report`
//! condenses what they found, `text` shows it, in `numbers` as a reader writes them. `growth` says how long a row is,
//! `spread` whether its rounds agree. `finished` is all of that, from plan to report. `study` is another thing that is
//! done with the programs.
//!
//! Grade: setup. Called by `cargo xtask bench` and `ibex bench`. Tests: in each file.

mod catalogue;
mod finished;
mod growth;
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

pub use catalogue::device_kind::Kind;
pub use catalogue::transport::Transport;
pub use finished::{Finished, measure};
pub use nodes::here::{Here, is_in_path};
pub use nodes::hosts::{Hosts, is_here, of_allocation};
pub use nodes::job::{Job, Nodes, Outcome, Stream};
pub use nodes::place::Where;
pub use nodes::processors::pair;
pub use numbers::size;
pub use plan::Plan;
pub use plan::available::{available, available_beside_ibex};
pub use plan::wanted::Wanted;
pub use programs::criterion::rate;
pub use programs::event_counts::Counts;
pub use report::events::{Cost, Message, NamedCounts};
pub use report::ratios::Ratio;
pub use report::{Report, Row};
pub use run::found::SMALL_BUFFER;
#[cfg(feature = "study")]
pub use study::{Extent, Study, study};
