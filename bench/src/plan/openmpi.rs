// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Open MPI that is measured with: its release and its components, by its own `ompi_info`.
//!
//! Grade: setup. Asked by [`super::available`]. Tests: at the end of this file.

use anyhow::{Context, Result, bail};
use std::process::Command;

/// What an Open MPI says of itself.
pub(crate) struct OpenMpi {
    /// `ompi_info --parsable`.
    listing: String,
}

impl OpenMpi {
    /// Asks the one in `PATH`, in such an environment.
    ///
    /// # Errors
    /// There is none, or it fails.
    pub(crate) fn here(environment: &[(String, String)]) -> Result<Self> {
        let info = Command::new("ompi_info").arg("--parsable").envs(environment.iter().cloned()).output();
        let info = info.context("Open MPI's ompi_info cannot be started: is it in PATH?")?;
        if !info.status.success() {
            bail!("`ompi_info --parsable` failed ({}): {}", info.status, String::from_utf8_lossy(&info.stderr).trim());
        }
        Ok(Self { listing: String::from_utf8_lossy(&info.stdout).into_owned() })
    }

    /// Whether it has a component, as its line begins: `mca:btl:tcp:`.
    pub(crate) fn has(&self, component: &str) -> bool {
        self.listing.lines().any(|line| line.starts_with(component))
    }

    /// The first number of its release; 0 where it does not say it.
    pub(crate) fn major(&self) -> u32 {
        let full = self.listing.lines().find_map(|line| line.strip_prefix("ompi:version:full:"));
        full.and_then(|full| full.split('.').next()?.parse().ok()).unwrap_or(0)
    }
}

#[cfg(test)]
impl From<&str> for OpenMpi {
    fn from(listing: &str) -> Self {
        Self { listing: listing.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_is_there_where_a_line_begins_with_it_and_the_release_is_what_a_line_says() {
        let five = OpenMpi::from("ompi:version:full:5.0.7\nmca:btl:sm:version:\"mca:2.1.0\"\n");
        assert!(five.has("mca:btl:sm:") && !five.has("mca:btl:openib:"));
        assert_eq!((five.major(), OpenMpi::from("").major()), (5, 0));
    }
}
