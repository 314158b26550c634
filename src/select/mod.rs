// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which ports and GIDs of this host a process uses, why, and how a port tells its peers where it is.
//!
//! - [`device`]: what verbs says there is; [`survey`] is where it begins.
//! - [`choose`]: which ports are used, as a pure function of that and of the parameters; [`gid`]: which GID of a port.
//! - [`subnet`]: the IP subnet of a GID.
//! - [`address`]: what a port publishes in the modex, as bytes; [`key`] is a part of it.
//!
//! Comes before the transport and knows nothing of it. Setup grade.

pub mod address;
pub mod choose;
pub mod device;
pub mod gid;
pub mod key;
pub mod partners;
pub mod subnet;

pub use device::{PortChoice, Survey, survey};
