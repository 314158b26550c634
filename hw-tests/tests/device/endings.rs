// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs in which a rank ends before its time: the job ends within bounded time, and says so.
//!
//! The runtime sees a process die and ends the job. That a peer that no longer answers is an error of ibex, which names it, is
//! one of the engine's own tests.
//!
//! Setup grade; one test at a time.

use crate::Test;
use crate::launch::Launch;
use crate::site::Site;
use anyhow::{Result, bail};

/// The tests of this file.
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
        tests.push(Test::new(name, move |site| ends(site, how, traffic)));
    }
    tests
}

/// Longer than the survivors of the program wait before they give up by themselves (`--seconds`).
const LIMIT: u64 = 90;

fn ends(site: &mut Site, how: &str, traffic: &str) -> Result<()> {
    let arguments = [how, "--traffic", traffic, "--seconds", "40"];
    let outcome = Launch::new("abnormal_exit", 3).arguments(&arguments).limit(LIMIT).is_refused_with(site, &[])?;
    gave_up_is_a_failure(&outcome)
}

/// A survivor that saw no error in its time says `not ok`.
fn gave_up_is_a_failure(outcome: &hw_tests::Outcome) -> Result<()> {
    if outcome.stdout.contains("not ok") {
        bail!("the survivors were not told of the death: {outcome}");
    }
    Ok(())
}
