// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one or two nodes with the device, and the jobs that run there.

mod here;
pub(crate) mod hosts;
pub(crate) mod job;
pub(crate) mod place;
mod processors;
mod sides;

pub use here::{Here, is_in_path};
pub use hosts::{Hosts, is_here, of_allocation};
pub use job::{Job, Nodes, Outcome, Stream};
pub use place::Where;
pub use processors::pair;
pub(crate) use sides::Sides;
