// SPDX-License-Identifier: MIT OR Apache-2.0
//! A finding: where, what was measured, what was expected, and what to do. Made by the checks, printed by [`super`].
//! Grade: setup. Tests: below.

use crate::answer::rows;
use serde::Serialize;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// Jobs fail, or avoid RDMA.
    Error,
    /// Jobs are slower than necessary, or fail sometimes.
    Warning,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    /// Name of the check, for programs.
    pub(crate) check: &'static str,
    pub(crate) place: String,
    pub(crate) measured: String,
    pub(crate) expected: String,
    /// The advice: a command, file or parameter.
    pub(crate) mend: String,
}

impl Finding {
    /// Makes a finding; [`Self::expected`] and [`Self::mended`] complete it.
    pub(crate) fn new(
        severity: Severity,
        check: &'static str,
        place: impl Into<String>,
        measured: impl Into<String>,
    ) -> Self {
        let (place, measured) = (place.into(), measured.into());
        Finding { severity, check, place, measured, expected: String::new(), mend: String::new() }
    }

    pub(crate) fn expected(self, expected: impl Into<String>) -> Self {
        Finding { expected: expected.into(), ..self }
    }

    pub(crate) fn mended(self, mend: impl Into<String>) -> Self {
        Finding { mend: mend.into(), ..self }
    }
}

/// The connection of two hosts' ports, made or failed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Connection {
    pub(crate) hosts: [String; 2],
    /// For example `mlx5_0:1 (LID 7)`.
    pub(crate) ports: [String; 2],
    pub(crate) milliseconds: Option<f64>,
    pub(crate) failure: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct Findings {
    #[serde(rename = "findings")]
    pub(crate) all: Vec<Finding>,
    pub(crate) hosts: usize,
    /// Whether the user named no host.
    #[serde(skip)]
    pub(crate) is_here: bool,
    pub(crate) connections: Vec<Connection>,
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut findings: Vec<&Finding> = self.all.iter().collect();
        findings.sort_by_key(|finding| finding.severity);
        for finding in &findings {
            let word = if finding.severity == Severity::Error { "error" } else { "warning" };
            writeln!(f, "{word}: {} ({})", finding.place, finding.check)?;
            let Finding { measured, expected, mend, .. } = *finding;
            let said = [("found", measured.clone()), ("expected", expected.clone()), ("do", mend.clone())];
            writeln!(f, "{}", rows(2, said))?;
        }
        let hosts = match self.hosts {
            1 if self.is_here => "this host".to_owned(),
            1 => "1 host".to_owned(),
            some => format!("{some} hosts"),
        };
        let (made, failed): (Vec<_>, Vec<_>) =
            self.connections.iter().partition(|connection| connection.failure.is_none());
        match (made.len(), failed.len()) {
            (0, 0) => {}
            (1, 0) => writeln!(f, "1 connected pair of ports.")?,
            (made, 0) => writeln!(f, "{made} connected pairs of ports.")?,
            (made, failed) => writeln!(f, "Pairs of ports: {made} connected, {failed} failed.")?,
        }
        match findings.len() {
            0 => writeln!(f, "Nothing is wrong with {hosts}."),
            1 => writeln!(f, "1 finding on {hosts}."),
            some => writeln!(f, "{some} findings on {hosts}."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_come_first_and_each_has_a_remedy() {
        let warning = Finding::new(Severity::Warning, "mtu", "a", "1024").expected("4096").mended("raise it");
        let error = Finding::new(Severity::Error, "port", "b", "down");
        let text = Findings { all: vec![warning, error], hosts: 1, is_here: true, connections: vec![] }.to_string();
        assert!(text.starts_with("error: b (port)\n  found  down\n"), "{text}");
        assert!(text.contains("  expected  4096\n  do        raise it\n"), "{text}");
        assert!(text.ends_with("2 findings on this host.\n"), "{text}");
    }
}
