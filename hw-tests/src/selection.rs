// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which of the device tests run on a device. `cargo xtask test` passes it to the program of the device tests in the
//! variable `IBEX_TESTS`.
//!
//! Setup grade; any thread.

use anyhow::{Result, bail};
use std::env;

/// The variable by which the program of the device tests is told its [`Selection`].
pub const TESTS_VARIABLE: &str = "IBEX_TESTS";

/// Which of the device tests run on a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Selection {
    /// Those of the quick tier.
    Quick,
    /// Those whose outcome may differ from that on another device.
    DeviceDependent,
    /// All.
    All,
}

impl Selection {
    /// The value of [`TESTS_VARIABLE`].
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::DeviceDependent => "device-dependent",
            Self::All => "all",
        }
    }

    /// The selection that [`TESTS_VARIABLE`] names; all tests where it is not set.
    ///
    /// # Errors
    /// It has another value.
    pub fn from_environment() -> Result<Self> {
        match env::var(TESTS_VARIABLE) {
            Ok(value) => Self::of(&value),
            Err(_) => Ok(Self::All),
        }
    }

    fn of(value: &str) -> Result<Self> {
        let all = [Self::Quick, Self::DeviceDependent, Self::All];
        match all.into_iter().find(|selection| selection.as_str() == value) {
            Some(selection) => Ok(selection),
            None => bail!("{TESTS_VARIABLE} is {value:?}; it can be `quick`, `device-dependent` or `all`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_selection_is_read_as_it_is_written_and_nothing_else_is_one() {
        for selection in [Selection::Quick, Selection::DeviceDependent, Selection::All] {
            assert_eq!(Selection::of(selection.as_str()).unwrap(), selection);
        }
        assert!(Selection::of("some").unwrap_err().to_string().contains("\"some\""));
    }
}
