// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine's own tests on a device (tests/engine), each under its name: their program is run where the device is.
//!
//! Setup grade; one test at a time.

use crate::Test;
use crate::site::Site;
use anyhow::{Context, Result, bail};
use hw_tests::Job;
use std::env;
use std::process::Command;

/// Names the program.
const VARIABLE: &str = "IBEX_ENGINE_TESTS";

/// The tests of this file. Without the program there is one, which says so.
pub(crate) fn tests() -> Vec<Test> {
    match listed() {
        Ok((program, names)) => names.into_iter().map(|name| test(program.clone(), name)).collect(),
        Err(error) => vec![Test::new("the tests of the engine can be listed", move |_| anyhow::bail!("{error:#}"))],
    }
}

fn test(program: String, name: String) -> Test {
    Test::new(format!("engine {name}"), move |site| run(site, &program, &name))
}

fn run(site: &mut Site, program: &str, name: &str) -> Result<()> {
    let fabric = site.fabric(1)?;
    let job = Job::new([program, "--ignored", "--exact", name, "--nocapture"]).env("IBEX_DEVICE", fabric.device_name());
    let outcome = fabric.run(&job)?.checked()?;
    if !outcome.stdout.contains("1 passed") {
        bail!("the test did not run: {outcome}");
    }
    for line in outcome.stdout.lines() {
        if let Some(reason) = line.strip_prefix("skip ") {
            site.skip(name, reason);
        }
    }
    Ok(())
}

/// The program and the names of its tests; it can be asked anywhere, as nothing of it runs.
fn listed() -> Result<(String, Vec<String>)> {
    let program = env::var(VARIABLE).with_context(|| format!("{VARIABLE} is not set; `cargo xtask test` sets it"))?;
    let output = Command::new(&program).args(["--ignored", "--list", "--format", "terse"]).output();
    let output = output.with_context(|| format!("{VARIABLE} is {program}, which cannot be started"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let names: Vec<String> = text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect();
    if names.is_empty() {
        bail!("{program} lists no test that needs a device: {text}{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok((program, names))
}
