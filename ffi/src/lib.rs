//! Safe wrappers of the C libraries that ibex calls: verbs, Open MPI, hwloc.

pub mod clock;
pub mod limits;
#[cfg(feature = "openmpi")]
pub mod openmpi;
pub mod shared;
pub mod thread;
pub mod topology;
pub mod verbs;
