//! Safe wrappers of the C libraries that ibex calls: verbs, Open MPI, hwloc.

pub mod clock;
pub mod limits;
#[cfg(feature = "openmpi")]
pub mod openmpi;
#[cfg(feature = "otf2")]
pub mod otf2;
pub mod shared;
pub mod thread;
pub mod topology;
pub mod verbs;
