//! Safe wrappers of the C libraries that ibex calls: verbs, Open MPI, hwloc. Also the memory monitor.

pub mod clock;
pub mod limits;
pub mod monitor;
#[cfg(feature = "openmpi")]
pub mod openmpi;
pub mod shared;
pub mod thread;
pub mod topology;
pub mod verbs;
