// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scripted faults: the configuration's rules, and their effects on packets, requests, objects and ports. `rule` has
//! the rules; the engine asks `verdict` about each packet, post and registration; `timeline` carries out the rules with
//! a time, and the commands that a user gives (`command`).

pub(crate) mod command;
pub(crate) mod rule;
pub(crate) mod timeline;
pub(crate) mod verdict;

pub use command::CommandError;
pub use rule::{Change, FaultAction, FaultRule};
