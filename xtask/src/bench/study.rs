// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask bench --study`: builds what `ibex bench --study` needs, runs it with the device, and gives its tables
//! to [`docs`]. Grade: setup. Tested by its use.

use super::device::opened;
use super::docs;
use crate::command::step;
use crate::environment::Environment;
use crate::setup::Need;
use crate::workspace::Workspace;
use crate::{build, setup};
use anyhow::{Context, Result, bail};
use hw_tests::{Device, Job, Stream};
use std::fs;
use std::process::ExitCode;
use std::time::Duration;

const LIMIT: Duration = Duration::from_mins(30);

pub(super) fn command(workspace: &Workspace, device: &Device, full: bool) -> Result<ExitCode> {
    if *device == Device::SoftRoce {
        bail!("the study runs on emulated adapters, or on an adapter of this machine: --device softhca");
    }
    let needs = [Need::OpenMpi, Need::Device, Need::Bench, Need::Study];
    setup::ensure(&Environment::here(), Some(&device.to_string()), &needs)?;
    build::library(workspace)?;
    build::library_without_events(workspace)?;
    for folder in ["benches/mpi", "examples"] {
        build::programs(workspace, folder)?;
    }
    build::preloaded_tools(workspace, "benches/tools")?;
    let fabric = opened(workspace, device)?;
    step("Studying");
    let (command, without) = (workspace.target().join("release/ibex"), workspace.without_events().components());
    let (programs, reports) = (workspace.programs(), workspace.reports());
    let text = |path: &std::path::Path| path.display().to_string();
    let mut words = vec![text(&command), "bench".to_owned(), "--study".to_owned()];
    words.extend(full.then(|| "--full".to_owned()));
    words.extend(["--device".to_owned(), fabric.device_name().to_owned()]);
    words.extend(["--programs".to_owned(), text(&programs), "--out".to_owned(), text(&reports)]);
    words.extend(["--without-events".to_owned(), text(&without)]);
    let path = format!("{}:SYSTEM_DEFAULT", workspace.components().display());
    let job = Job::new(words).env("OMPI_MCA_mca_base_component_path", path).limit(LIMIT);
    let outcome = fabric.run_with(&job, |stream, line| match stream {
        Stream::Stdout => println!("{line}"),
        Stream::Stderr => eprintln!("{line}"),
    })?;
    if !outcome.success() {
        bail!("the study failed: {outcome}");
    }
    let tables = reports.join("study.md");
    let tables = fs::read_to_string(&tables).with_context(|| format!("cannot read {}", text(&tables)))?;
    docs::write(workspace, "study.md", &tables)?;
    Ok(ExitCode::SUCCESS)
}
