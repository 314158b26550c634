// SPDX-License-Identifier: MIT OR Apache-2.0
//! The libfabric provider: its file, and the port that it would offer, which it chooses without Open MPI's parameters.
//! Called by [`super`]. Grade: setup. Tests: below.

use crate::answer::rows;
use crate::installed::Installed;
use ibex::select::device;
use ibex::tunables::Tunables;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Provider {
    /// `None`: it is not installed.
    pub(crate) file: Option<PathBuf>,
    /// The domain that it offers, a port such as `mlx5_0:1`; `None`: none.
    pub(crate) domain: Option<String>,
    /// Why it offers none; the adapters' facts have more.
    pub(crate) reason: String,
}

pub(crate) fn look() -> Provider {
    let survey = device::survey(&Tunables::default());
    let first = survey.ports.first();
    Provider {
        file: Installed::here().and_then(|installed| installed.provider()).ok(),
        domain: first.map(|port| format!("{}:{}", port.device, port.port)),
        reason: first.map_or_else(|| survey.complaint.lines().next().unwrap_or_default().to_owned(), |_| String::new()),
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = match &self.file {
            Some(file) => file.display().to_string(),
            None => "not installed: `cargo xtask install`".to_owned(),
        };
        let offers = self.domain.clone().unwrap_or_else(|| format!("no port: {}", self.reason));
        let programs = self.file.as_ref().map(|_| "ibex run -- mpiexec ./app".to_owned()).unwrap_or_default();
        write!(f, "libfabric\n{}", rows(2, [("libibex-fi.so", file), ("offers", offers), ("used by", programs)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_shown_with_its_port_or_with_what_is_missing() {
        let there =
            Provider { file: Some("/i/libibex-fi.so".into()), domain: Some("mlx5_0:1".into()), ..Provider::default() };
        let text = there.to_string();
        assert!(text.contains("libibex-fi.so  /i/libibex-fi.so\n") && text.contains("mlx5_0:1\n"), "{text}");
        let missing = Provider { reason: "there is no adapter".into(), ..Provider::default() }.to_string();
        assert!(missing.contains("not installed: `cargo xtask install`"), "{missing}");
        assert!(missing.contains("no port: there is no adapter") && !missing.contains("ibex run"), "{missing}");
    }
}
