// SPDX-License-Identifier: MIT OR Apache-2.0
//! The installed Open MPI, and the differences between release series for programs that start jobs. ffi/src/openmpi has
//! the differences for the component. Setup grade; any thread. Tests: at the end of this file.

use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::OnceLock;

use anyhow::{Context, bail};

/// A release series of Open MPI that ibex is made for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Series {
    /// 4.1, whose runtime is ORTE.
    V4_1,
    /// 5.0, whose runtime is PRRTE.
    V5,
}

impl FromStr for Series {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> anyhow::Result<Self> {
        match name {
            "4.1" => Ok(Self::V4_1),
            "5" | "5.0" => Ok(Self::V5),
            _ => bail!("{name:?} is no release series of Open MPI that ibex is made for; give 4.1 or 5"),
        }
    }
}

impl fmt::Display for Series {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::V4_1 => "4.1",
            Self::V5 => "5",
        })
    }
}

impl Series {
    /// Returns the series of the Open MPI in `PATH`; `None` if there is no Open MPI.
    ///
    /// # Errors
    /// `ompi_info` cannot be run, or names another series.
    pub fn installed() -> anyhow::Result<Option<Self>> {
        static INSTALLED: OnceLock<Result<Option<Series>, String>> = OnceLock::new();
        let found = INSTALLED.get_or_init(|| asked().map_err(|error| format!("{error:#}")));
        found.clone().map_err(anyhow::Error::msg)
    }

    /// Returns the series of the Open MPI in `PATH`.
    ///
    /// # Errors
    /// As [`Series::installed`]; also if there is no Open MPI.
    pub fn here() -> anyhow::Result<Self> {
        Self::installed()?.context("there is no Open MPI in PATH (Debian: openmpi-bin)")
    }

    /// Returns an Open MPI parameter as this series spells it. Tests call the BTL for processes of one host `sm`, as 5
    /// does (4.1: `vader`). They may name `osc/pt2pt`: for 5, which lacks it, this puts `osc/rdma`, which there works
    /// over any BTL.
    pub fn spelled(self, name: &str, value: &str) -> (String, String) {
        let name = match (self, name.strip_prefix("btl_sm_")) {
            (Self::V4_1, Some(of_sm)) => format!("btl_vader_{of_sm}"),
            _ => name.to_owned(),
        };
        let words = value.split(',');
        let value = match (self, name.as_str()) {
            (Self::V4_1, "btl") => words.map(|word| if word == "sm" { "vader" } else { word }).collect::<Vec<_>>(),
            (Self::V5, "osc") if value == "pt2pt" => vec!["rdma"],
            (Self::V5, "osc") => words.filter(|word| *word != "pt2pt").collect(),
            _ => vec![value],
        };
        (name, value.join(","))
    }

    /// Whether it has the BTL openib, Open MPI's own for verbs.
    pub fn has_openib(self) -> bool {
        self == Self::V4_1
    }

    /// Whether it has `osc/pt2pt`, which makes windows of messages.
    pub fn has_windows_of_messages(self) -> bool {
        self == Self::V4_1
    }

    /// Whether `MPI_Comm_accept` works. Debian 13's 5.0.7 fails it in the runtime, over any transport.
    pub fn has_ports(self) -> bool {
        self == Self::V4_1
    }

    /// Whether osc/rdma performs atomics by messages where the BTL has none (`btl_base_am_rdma.c`). If so, an operation
    /// outside of a window crashes the target in Open MPI's code.
    pub fn has_atomics_by_messages(self) -> bool {
        self == Self::V5
    }

    /// Size of ob1's largest header in bytes: the smallest eager limit of a BTL.
    pub fn largest_ob1_header(self) -> u32 {
        match self {
            Self::V4_1 => 64,
            Self::V5 => 80,
        }
    }

    /// Returns the options for more ranks than processors; `by_turns` alternates between the hosts.
    pub fn oversubscribed(self, by_turns: bool) -> Vec<String> {
        let words: &[&str] = match (self, by_turns) {
            (Self::V4_1, false) => &["--oversubscribe"],
            (Self::V4_1, true) => &["--oversubscribe", "--map-by", "node"],
            (Self::V5, false) => &["--map-by", ":OVERSUBSCRIBE"],
            (Self::V5, true) => &["--map-by", "node:OVERSUBSCRIBE"],
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// Returns the environment of a job: root may start it, and Open MPI also looks for components in `components`.
    ///
    /// 5 hands that folder to PMIx and PRRTE, which complain of each file in it unless PMIx has a folder of its own.
    /// `/sys` has no files; with an empty name mpirun of 5 crashes when it starts processes on another node.
    pub fn environment(components: &Path) -> [(String, String); 4] {
        let path = format!("{}:SYSTEM_DEFAULT", components.display());
        [
            ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            ("OMPI_MCA_mca_base_component_path", &path),
            ("PMIX_MCA_mca_base_component_path", "/sys"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
    }
}

/// Returns why a program of hw-tests/mpi runs with Open MPI only, as a line in its head says; `None`: it runs with
/// every MPI.
pub fn why_needed(program: &Path) -> Option<String> {
    let text = std::fs::read_to_string(program).ok()?;
    text.lines().find_map(|line| line.strip_prefix("// Needs Open MPI: ")).map(str::to_owned)
}

fn asked() -> anyhow::Result<Option<Series>> {
    let info = Command::new("ompi_info").arg("--version").stdin(Stdio::null()).output();
    let info = match info {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        info => info.context("ompi_info cannot be started")?,
    };
    series_of(&String::from_utf8_lossy(&info.stdout)).map(Some)
}

/// The series that `ompi_info --version` names: `Open MPI v5.0.7`.
fn series_of(text: &str) -> anyhow::Result<Series> {
    let version = text.lines().find_map(|line| line.trim().strip_prefix("Open MPI v"));
    let version = version.with_context(|| format!("ompi_info names no version: {:?}", text.trim()))?;
    match version.split('.').collect::<Vec<_>>()[..] {
        ["4", "1", ..] => Ok(Series::V4_1),
        ["5", "0", ..] => Ok(Series::V5),
        _ => bail!("this is Open MPI {version}, and ibex is made for 4.1 and 5.0"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_is_what_ompi_info_names() {
        assert_eq!(series_of("Open MPI v5.0.7\n\nhttps://www.open-mpi.org/community/help/\n").unwrap(), Series::V5);
        assert_eq!(series_of("Open MPI v4.1.4\n").unwrap(), Series::V4_1);
        let refusal = series_of("Open MPI v3.1.6\n").unwrap_err().to_string();
        assert!(refusal.contains("3.1.6") && refusal.contains("5.0"), "{refusal}");
        assert!(series_of("").is_err());
    }

    #[test]
    fn the_option_accepts_the_series_that_it_shows() {
        for series in [Series::V4_1, Series::V5] {
            assert_eq!(series.to_string().parse::<Series>().unwrap(), series);
        }
        assert!("6".parse::<Series>().unwrap_err().to_string().contains("4.1 or 5"));
    }

    #[test]
    fn parameters_are_spelled_as_the_series_does() {
        let spelled = |series: Series, name, value| series.spelled(name, value);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(spelled(Series::V5, "btl", "self,sm,ibex"), pair("btl", "self,sm,ibex"));
        assert_eq!(spelled(Series::V4_1, "btl", "self,sm,ibex"), pair("btl", "self,vader,ibex"));
        let copies = spelled(Series::V4_1, "btl_sm_single_copy_mechanism", "none");
        assert_eq!(copies, pair("btl_vader_single_copy_mechanism", "none"));
        assert_eq!(spelled(Series::V4_1, "osc", "rdma,pt2pt"), pair("osc", "rdma,pt2pt"));
        assert_eq!(spelled(Series::V5, "osc", "rdma,pt2pt"), pair("osc", "rdma"));
        assert_eq!(spelled(Series::V5, "osc", "pt2pt"), pair("osc", "rdma"));
    }
}
