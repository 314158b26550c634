//! What ibex calls, made safe.

pub mod clock;
#[cfg(feature = "openmpi")]
pub mod openmpi;
pub mod topology;
pub mod verbs;
