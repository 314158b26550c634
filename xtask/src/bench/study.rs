// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask bench --study`: builds what `ibex bench --study` needs, runs it with the device, and writes its tables
//! into docs/study.md if `IBEX_WRITE_DOCS` is set. Grade: setup. Tests: below.

use super::device::opened;
use crate::command::step;
use crate::environment::Environment;
use crate::setup::Need;
use crate::workspace::Workspace;
use crate::{build, setup};
use anyhow::{Context, Result, bail};
use hw_tests::{Device, Job, Stream};
use std::process::ExitCode;
use std::time::Duration;
use std::{env, fs};

const BEGIN: &str = "<!-- what follows is written by `IBEX_WRITE_DOCS=1 cargo xtask bench --study --full` -->\n";
const END: &str = "<!-- what came before is written -->\n";

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
    if env::var_os("IBEX_WRITE_DOCS").is_some() {
        let (page, tables) = (workspace.root().join("docs/study.md"), reports.join("study.md"));
        let read = |path| fs::read_to_string(path).with_context(|| format!("cannot read {}", text(path)));
        fs::write(&page, with_tables(&read(&page)?, &read(&tables)?)?)?;
        println!("Wrote {}", workspace.shown(&page).display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the page with these tables between its markers.
fn with_tables(page: &str, tables: &str) -> Result<String> {
    let parts = page.split_once(BEGIN).and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
    let (head, tail) = parts.context("docs/study.md has no place for the tables")?;
    Ok(format!("{head}{BEGIN}\n{}\n\n{END}{tail}", tables.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_a_run_take_the_place_of_the_last() {
        let page = format!("# A\n\n{BEGIN}old\n{END}\nb\n");
        let new = with_tables(&page, "| new |\n").unwrap();
        assert_eq!(new, format!("# A\n\n{BEGIN}\n| new |\n\n{END}\nb\n"));
        assert_eq!(with_tables(&new, "| new |\n").unwrap(), new);
        assert!(with_tables("# A\n", "").is_err());
    }

    #[test]
    fn the_page_has_a_place_for_them() {
        let page = fs::read_to_string(Workspace::here().root().join("docs/study.md")).unwrap();
        assert!(with_tables(&page, "").is_ok());
    }
}
