//! What ibex calls, made safe.

#[cfg(feature = "openmpi")]
pub mod openmpi;
pub mod topology;
pub mod verbs;
