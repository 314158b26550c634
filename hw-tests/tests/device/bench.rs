// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibex bench`, as a user runs it: within a host, and between two.
//!
//! `IBEX_COMMAND` names the program. Setup grade; one test at a time.

use crate::site::{Site, command};
use crate::test::Test;
use anyhow::{Context, Result, ensure};
use hw_tests::{Job, Outcome};
use std::time::Duration;
use std::{env, fs};

/// The tests of this file.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::on_emulated("a user measures ibex beside other transports within a host", within_a_host)
            .device_independent(),
        Test::on_emulated("a study finds the late sender and the late receiver that were planted", study)
            .device_independent(),
        Test::on_two_nodes("a user measures ibex beside other transports between two hosts", between_two_hosts),
    ]
}

/// A short bench on node 0; its report is what it prints.
fn bench(site: &Site, arguments: &[&str]) -> Result<Job> {
    let (command, programs) = (command()?, site.programs());
    let out = env::temp_dir().join("ibex-bench-of-a-test").display().to_string();
    let words = ["bench", "--json", "--tests", "latency", "--rounds", "1"];
    let words = [command.as_str()].into_iter().chain(words).chain(["--programs", &programs, "--out", &out]);
    Ok(site.job(words.chain(arguments.iter().copied())).limit(Duration::from_mins(15)))
}

/// Checks that the report has a row for each size over each of these transports.
fn measured(outcome: &Outcome, sizes: usize, transports: &[&str]) -> Result<()> {
    for transport in transports {
        let rows = outcome.stdout.matches(&format!("\"transport\": \"{transport}\"")).count();
        ensure!(rows >= sizes, "there are {rows} rows of {transport}, and not one for each size: {outcome}");
    }
    Ok(())
}

fn within_a_host(site: &mut Site) -> Result<()> {
    let job = bench(site, &["--sizes", "8,4K", "--transports", "ibex,ibex-btl,tcp"])?;
    measured(&site.fabric(1)?.run(&job)?.checked()?, 2, &["ibex", "ibex-btl", "tcp"])
}

/// A first look. Its findings are what `ibex explain --waits --json` says of the trace. The ranks must be right; how long
/// they waited is for the command to judge, as it depends on how busy the machine is.
fn study(site: &mut Site) -> Result<()> {
    let (command, programs) = (command()?, site.programs());
    let out = env::temp_dir().join(format!("ibex-study-of-a-test-{}", std::process::id())).display().to_string();
    let words = [&command, "bench", "--study", "--json", "--programs", &programs, "--out", &out];
    let job = site.job(words).limit(Duration::from_mins(10));
    let outcome = site.fabric(1)?.run(&job)?;
    // Of what is left nobody needs the traces.
    let _ = fs::remove_dir_all(&out);
    let study: serde_json::Value = serde_json::from_str(&outcome.stdout).with_context(|| outcome.to_string())?;
    for (fault, (kind, pair)) in [("late_sender", ("0", "1")), ("late_receiver", ("2", "3"))].into_iter().enumerate() {
        let found = &study["planted"][fault];
        ensure!(found["kind"] == kind, "{found} is no {kind}");
        ensure!(
            (&found["wait"]["from"], &found["wait"]["to"]) == (&pair.0.into(), &pair.1.into()),
            "{found}: {outcome}"
        );
    }
    let applications = study["applications"].as_array().context("no applications")?;
    for application in applications {
        let has = |name: &str| application[name].as_array().is_some_and(|rows| !rows.is_empty());
        ensure!(has("times") && has("queues") && has("searches") && application["lost"] == 0, "{application}");
    }
    ensure!(applications.len() == 2, "hpcc or halo lacks: {}", study["left_out"]);
    compared(&study["sizes"]["rows"], 11, 3)?;
    compared(&study["rma_threads"]["rows"], 12, 3)?;
    // LAMMPS is there where somebody has studied.
    let programs = study["run_times"].as_array().context("no run times")?;
    ensure!(programs.iter().any(|of| of["program"] == "hpcc"), "hpcc is not timed: {}", study["left_out"]);
    compared(&study["run_times"], programs.len(), 5)
}

/// Checks that so many things were measured, each in so many ways: all but the build without events, which is not there.
fn compared(rows: &serde_json::Value, count: usize, ways: usize) -> Result<()> {
    let rows = rows.as_array().context("a part of the study lacks")?;
    let is_whole = |row: &serde_json::Value| row["ways"].as_array().is_some_and(|of| of.len() == ways);
    ensure!(rows.len() == count && rows.iter().all(is_whole), "not {count} rows of {ways} ways: {rows:?}");
    Ok(())
}

fn between_two_hosts(site: &mut Site) -> Result<()> {
    let fabric = site.fabric(2)?;
    let [one, other] = [fabric.host_name(0), fabric.host_name(1)];
    let hosts = format!("{one},{other}");
    let job = bench(site, &["--sizes", "8", "--host", &hosts, "--transports", "ibex,ibex-btl,raw,tcp"])?;
    let outcome = site.fabric(2)?.run(&job)?;
    // A busy machine may keep perftest from finding its clock; the rest is measured all the same.
    let (busy, transports) = (outcome.stdout.contains("too busy"), ["ibex", "ibex-btl", "tcp", "raw"]);
    ensure!(outcome.success() || busy, "{outcome}");
    measured(&outcome, 1, &transports[..if busy { 3 } else { 4 }])?;
    ensure!(outcome.stdout.contains(&format!("between {one} and {other}")), "{outcome}");
    Ok(())
}
