// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs commands with a time limit, and ends all processes that they started.
//!
//! [`here`] starts a [`Job`] on this machine; [`Running`] waits for a line of its output, or for its end, and returns
//! an [`Outcome`]. The bench runs its programs so, and `hw-tests`, whose agents pass on the [`Event`]s of jobs in
//! virtual machines. Setup grade: it may block, allocate and start processes.

#![forbid(unsafe_code)]

mod job;
mod pace;
mod process;
mod running;

pub use job::{Ending, Event, Job, Outcome, Stream};
pub use pace::crowding;
pub use process::{Kill, Purpose, here, start};
pub use running::Running;
