// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses the ports and GIDs that a process uses, and encodes their addresses.
//!
//! - [`device`]: the devices and ports, from verbs; [`survey`] is the entry point.
//! - [`choose`]: the choice of ports, as a pure function of these and of the parameters; [`gid`]: the choice of a GID.
//! - [`subnet`]: the IP subnet of a GID.
//! - [`address`]: the bytes that a port publishes in the modex; [`key`] is a part of them.
//!
//! The transport uses it; it does not depend on the transport. Setup grade.

pub mod address;
pub mod choose;
pub mod device;
pub mod gid;
pub mod key;
pub mod partners;
pub mod subnet;

pub use device::{PortChoice, Survey, survey};
