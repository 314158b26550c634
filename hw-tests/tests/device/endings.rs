// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs in which a rank ends before its time: the job ends within bounded time, and says so.
//!
//! Under plain mpirun the runtime ends the job. With `--enable-recovery` ibex must report the peer that no longer
//! answers, even to a survivor that only waits for it. Setup grade; one test at a time.

use crate::launch::Launch;
use crate::site::Site;
use crate::test::Test;
use anyhow::{Result, bail};

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for (how, traffic) in [
        ("_exit", "small"),
        ("exit", "small"),
        ("abort", "large"),
        ("kill", "large"),
        ("kill", "flood"),
        ("segv", "one_sided"),
        ("mpi_abort", "small"),
    ] {
        let name = format!("a rank that ends by {how} during {traffic} traffic ends the job");
        let test = Test::new(name, move |site| ends(site, how, traffic));
        let test = test.quick_if((how, traffic) == ("kill", "large"));
        // Adapters handle all deaths of a process in the same way, so one kind of death on each device is enough.
        tests.push(if how == "kill" { test } else { test.device_independent() });
    }
    for traffic in ["small", "large", "flood", "one_sided"] {
        let name = format!("ibex names the peer that died during {traffic} traffic when the runtime says nothing");
        let test = Test::new(name, move |site| survivor_is_told(site, traffic));
        tests.push(test.quick_if(traffic == "small"));
    }
    let name = "a rank that loses a peer says how waiting ranks of a job that goes on notice it";
    tests.push(Test::new(name, waiting_ranks_are_spoken_of).device_independent());
    tests
}

/// Time limit: longer than the time after which survivors give up by themselves (`--seconds`).
const LIMIT: u64 = 720;

fn ends(site: &mut Site, how: &str, traffic: &str) -> Result<()> {
    let arguments = [how, "--traffic", traffic, "--seconds", "600"];
    let outcome = Launch::new("abnormal_exit", 3).arguments(&arguments).limit(LIMIT).is_refused_with(site, &[])?;
    gave_up_is_a_failure(&outcome)
}

/// Two ranks under mpirun with this option: one is killed in such traffic, and the other notices it soon.
pub(crate) fn killed(traffic: &str, option: &'static str) -> Launch {
    Launch::new("abnormal_exit", 2)
        .arguments(&["kill", "--traffic", traffic, "--seconds", "600"])
        .option(option)
        .with("btl_ibex_ack_timeout", "14")
        // The victim of a flood may die before it has answered the first hello.
        .with("btl_ibex_connect_timeout", "10")
        .limit(LIMIT)
}

fn survivor_is_told(site: &mut Site, traffic: &str) -> Result<()> {
    let launch = killed(traffic, "--enable-recovery").with("btl_ibex_probe_interval", "1");
    // With that option mpirun's status is always 0.
    let outcome = launch.ends_saying(site, &["ibex lost a peer", "rank 1"])?;
    gave_up_is_a_failure(&outcome)
}

/// If probes are off, ibex advises the user to enable them, unless the runtime ends the job.
fn waiting_ranks_are_spoken_of(site: &mut Site) -> Result<()> {
    let advice = "--mca btl_ibex_probe_interval 10";
    for (option, is_said) in [("--enable-recovery", true), ("--tag-output", false)] {
        // The survivor of a flood has sent messages, which fail.
        let outcome = killed("flood", option).run(site)?;
        if outcome.stderr.contains(advice) != is_said {
            bail!("with {option} ranks that wait are spoken of, or without it: {outcome}");
        }
    }
    Ok(())
}

/// A survivor that saw no error in time prints `not ok`.
fn gave_up_is_a_failure(outcome: &hw_tests::Outcome) -> Result<()> {
    if outcome.stdout.contains("not ok") {
        bail!("the survivors were not told of the death: {outcome}");
    }
    Ok(())
}
