// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one or two nodes with the device, and the jobs that run there.

pub(crate) mod hosts;
pub(crate) mod job;
pub(crate) mod place;
mod processors;
mod sides;

pub use hosts::{Hosts, is_here, of_allocation};
pub use job::{Here, Job, Nodes, Outcome, Stream, is_in_path};
pub use place::Where;
pub use processors::pair;
pub(crate) use sides::Sides;
