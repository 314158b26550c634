// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a profile consists of.
//!
//! Called by: the profiles, the configuration. Grade: setup. Thread rule: a plain value.

use crate::behaviour::Behaviour;
use crate::engine::ClockSpec;
use crate::limits::Limits;

/// What a device begins with, before its own keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Profile {
    /// Unless the device says otherwise (`codes::link_layer`).
    pub(crate) link_layer: u8,
    pub(crate) limits: Limits,
    pub(crate) behaviour: Behaviour,
    pub(crate) clock: ClockSpec,
}
