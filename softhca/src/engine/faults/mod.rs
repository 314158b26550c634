// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scripted faults: rules that the configuration gives, and what they do to packets, requests, objects and ports.
//!
//! `rule` has them; `verdict` is asked about each packet, post and registration; `timeline` does what has a time, and
//! what `command` is given from outside.

pub(crate) mod command;
pub(crate) mod rule;
pub(crate) mod timeline;
pub(crate) mod verdict;

pub use command::CommandError;
pub use rule::{Change, FaultAction, FaultRule};
