// SPDX-License-Identifier: MIT OR Apache-2.0
//! The place where tests run: the open fabric, and the folders of the component and the programs.
//!
//! Only one fabric is open at a time, as test machines have two processors. The usual one serves test after test; one
//! on a test's own adapters serves one run, as its faults count from its beginning. Setup grade; one thread at a time.

use crate::test::share;
use anyhow::{Context, Result, anyhow, bail, ensure};
use hw_tests::{Device, Fabric, Folder, Job, Options, Outcome, Selection};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

struct Open {
    fabric: Fabric,
    /// Folder with the configuration of its adapters, removed after it.
    adapters: Option<Folder>,
}

pub(crate) struct Site {
    device: Device,
    selection: Selection,
    components: PathBuf,
    programs: PathBuf,
    open: Option<Open>,
    /// Number of nodes and reason of each fabric that could not be opened.
    refused: Vec<(usize, String)>,
    /// Skipped tests with the reasons.
    pub(crate) skips: Vec<String>,
    /// Repeated tests with the reasons.
    pub(crate) repeats: Vec<String>,
    /// Number of cases that the programs reported as passed.
    pub(crate) cases: u64,
    pub(crate) took: Vec<(Duration, String)>,
}

impl Site {
    /// Returns the site that the environment describes; `None` if it names no device.
    pub(crate) fn from_environment() -> Result<Option<Self>> {
        let Some(device) = env::var_os("IBEX_DEVICE").filter(|name| !name.is_empty()) else { return Ok(None) };
        let device = device.to_str().context("IBEX_DEVICE is not text")?.parse()?;
        Ok(Some(Self {
            device,
            selection: Selection::from_environment()?,
            components: folder("IBEX_COMPONENTS")?,
            programs: folder("IBEX_PROGRAMS")?,
            open: None,
            refused: Vec::new(),
            skips: Vec::new(),
            repeats: Vec::new(),
            cases: 0,
            took: Vec::new(),
        }))
    }

    /// Returns the fabric with this number of nodes, and opens it if it is not open.
    pub(crate) fn fabric(&mut self, nodes: usize) -> Result<&Fabric> {
        if let Some((_, reason)) = self.refused.iter().find(|(count, _)| *count == nodes) {
            bail!("the device {} could not be opened before: {reason}", self.device);
        }
        let usable = |open: &Open| open.adapters.is_none() && open.fabric.nodes() == nodes && open.fabric.alive();
        if !self.open.as_ref().is_some_and(usable) {
            self.open = None;
            match Fabric::open(&self.device, nodes) {
                Ok(fabric) => self.open = Some(Open { fabric, adapters: None }),
                Err(error) => {
                    // The first failure showed the rest.
                    let text = format!("{error:#}");
                    self.refused.push((nodes, text.lines().next().unwrap_or_default().to_owned()));
                    return Err(error.context(format!("the device {} cannot be opened", self.device)));
                }
            }
        }
        self.open_fabric()
    }

    /// Opens a fabric on emulated adapters of this configuration.
    pub(crate) fn fabric_on(&mut self, configuration: &str) -> Result<&Fabric> {
        self.open = None;
        let adapters = Folder::new("ibex-adapters")?;
        let file = adapters.file("adapters.toml");
        fs::write(&file, configuration).with_context(|| format!("cannot write {}", file.display()))?;
        let options = Options { nodes: 1, adapters: Some(file) };
        let fabric = Fabric::open_with(&self.device, &options)?;
        self.open = Some(Open { fabric, adapters: Some(adapters) });
        self.open_fabric()
    }

    fn open_fabric(&self) -> Result<&Fabric> {
        self.open.as_ref().map(|open| &open.fabric).ok_or_else(|| anyhow!("no fabric is open"))
    }

    /// Returns a counter of port 1 of an emulated adapter (a file of its `hw_counters`).
    pub(crate) fn counted(&self, device: &str, counter: &str) -> Result<u64> {
        counted(self.open_fabric()?, device, counter)
    }

    /// Returns a file that the emulated adapters wrote to the fabric's folder; empty if there is none.
    pub(crate) fn noted(&self, file: &str) -> Result<String> {
        let script = format!("if [ -e \"$SOFTHCA_FABRIC/{file}\" ]; then cat \"$SOFTHCA_FABRIC/{file}\"; fi");
        Ok(self.open_fabric()?.run(&Job::new(["sh", "-c", &script]))?.checked()?.stdout)
    }

    /// The folder with the component links.
    pub(crate) fn components(&self) -> &Path {
        &self.components
    }

    /// Makes a job in which Open MPI finds the components.
    pub(crate) fn job<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Job {
        let path = format!("{}:SYSTEM_DEFAULT", self.components.display());
        Job::new(words).env("OMPI_MCA_mca_base_component_path", path)
    }

    pub(crate) fn programs(&self) -> String {
        self.programs.display().to_string()
    }

    /// Returns the path of a compiled program, or of a program of the machine, which has an absolute path.
    pub(crate) fn program(&self, name: &str) -> Result<String> {
        let path = self.programs.join(name);
        if !path.is_file() {
            bail!("there is no program {}; `cargo xtask test` compiles ours and installs others", path.display());
        }
        Ok(path.display().to_string())
    }

    /// Whether tests may break the device and change its nodes, as these are virtual machines.
    pub(crate) fn is_disposable(&self) -> bool {
        self.device == Device::SoftRoce
    }

    pub(crate) fn share(&self) -> f64 {
        share(self.selection, &self.device)
    }

    pub(crate) fn selection(&self) -> Selection {
        self.selection
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn slowest(&self, count: usize) -> Vec<(Duration, String)> {
        let mut took = self.took.clone();
        took.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
        took.truncate(count);
        took
    }

    pub(crate) fn skip(&mut self, what: &str, reason: &str) {
        self.skips.push(format!("{what}: {reason}"));
    }
}

pub(crate) fn command() -> Result<String> {
    env::var("IBEX_COMMAND").context("IBEX_COMMAND is not set; `cargo xtask test` does it")
}

pub(crate) fn counted(fabric: &Fabric, device: &str, counter: &str) -> Result<u64> {
    let file = format!("$SOFTHCA_FABRIC/sysfs/class/infiniband/{device}/ports/1/hw_counters/{counter}");
    let outcome = fabric.run(&Job::new(["sh", "-c", &format!("cat \"{file}\"")]))?.checked()?;
    outcome.stdout.trim().parse().with_context(|| format!("{counter} of {device} is {:?}", outcome.stdout))
}

/// Returns a `[[fault]]` of this fabric that has not taken place, as `softhca ctl faults` shows it.
pub(crate) fn fault_to_come(fabric: &Fabric) -> Result<Option<String>> {
    let told = fabric.ctl(&["faults"])?;
    ensure!(!told.is_empty(), "the fabric knows no faults");
    Ok(told.lines().find(|line| line.contains(" applied 0 of ")).map(str::to_owned))
}

/// Checks that each fault of the fabric's configuration took place by the end of a job.
pub(crate) fn faults_applied(fabric: &Fabric, configuration: &str, outcome: &Outcome) -> Result<()> {
    if configuration.contains("[[fault]]")
        && let Some(fault) = fault_to_come(fabric)?
    {
        bail!("a fault did not take place ({fault}): {outcome}");
    }
    Ok(())
}

fn folder(variable: &str) -> Result<PathBuf> {
    let path = env::var_os(variable).with_context(|| format!("{variable} is not set; `cargo xtask test` sets it"))?;
    let path = PathBuf::from(path);
    path.canonicalize().with_context(|| format!("{variable} is {}, which is not there", path.display()))
}
