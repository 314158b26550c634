// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each program gives: one value of a test, over a transport, with a size.
//!
//! Grade: setup. Made by the files of this folder, condensed by [`crate::report`]. Plain data.

use crate::catalogue::transport::Transport;

/// One measured value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measurement {
    /// Name of the test, or of the raw program.
    pub(crate) test: String,
    /// What carried it.
    pub(crate) transport: Transport,
    /// Message size.
    pub(crate) bytes: u64,
    /// The value, in the unit of the test.
    pub(crate) value: f64,
    /// What the measurement itself says of its spread.
    pub(crate) spread: f64,
    /// How long it took, where the program says it.
    pub(crate) seconds: Option<f64>,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn measured(test: &str, transport: Transport, bytes: u64, value: f64) -> Measurement {
        Measurement { test: test.to_owned(), transport, bytes, value, spread: 0.5, seconds: None }
    }
}
