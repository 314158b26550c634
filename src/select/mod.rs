// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses the ports and GIDs that a process uses, and encodes their addresses. [`survey`] is the entry point:
//! [`device`] reads devices and ports from verbs, [`choose`] and [`gid`] choose as pure functions. [`address`] has the
//! bytes that a port publishes in the modex. Does not depend on the transport, which uses it. Grade: setup.

pub mod address;
pub mod choose;
pub mod device;
pub mod gid;
pub mod key;
pub mod partners;

pub use device::{PortChoice, Survey, survey};
