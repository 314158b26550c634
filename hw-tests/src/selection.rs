// SPDX-License-Identifier: MIT OR Apache-2.0
//! The selection of device tests to run: `cargo xtask test` passes it to their program. Setup grade; any thread.

use anyhow::{Result, bail};
use std::env;

/// Variable with the [`Selection`], for the program of the device tests.
pub const TESTS_VARIABLE: &str = "IBEX_TESTS";

/// Device tests to run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Selection {
    /// The tests of the quick tier.
    Quick,
    /// The tests whose outcome may depend on the device.
    DeviceDependent,
    /// All tests.
    All,
}

impl Selection {
    /// Returns the value of [`TESTS_VARIABLE`].
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::DeviceDependent => "device-dependent",
            Self::All => "all",
        }
    }

    /// Returns the selection that [`TESTS_VARIABLE`] names; all tests if it is not set.
    ///
    /// # Errors
    /// The variable has an unknown value.
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
