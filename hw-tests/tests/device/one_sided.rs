// SPDX-License-Identifier: MIT OR Apache-2.0
//! One-sided operations of the libfabric provider (`hw-tests/libfabric/one_sided*.c`). Setup grade; one test at a time.

use crate::provider;
use crate::site::Site;
use crate::test::Test;
use anyhow::{Result, ensure};

/// Adapters on which they run, by name: with the usual limits, and with one short of everything.
const ADAPTERS: [(&str, &str); 2] = [("usual", ""), ("minimal", "profile = \"minimal\"\n")];

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for (name, profile) in ADAPTERS {
        let said = format!("one-sided operations of a libfabric program move the right bytes by the {name} adapter");
        tests.push(Test::on_emulated(said, move |site| passes(site, "one_sided", "", profile, 1)).quick());
    }
    for (arguments, regions) in [("", "all regions"), ("--named", "the regions that the program names")] {
        let said = format!("a target counts its peers' accesses to {regions}, and sleeps until there are some");
        tests.push(Test::on_emulated(said, move |site| passes(site, "accesses", arguments, "", 1)).quick());
    }
    for (name, profile) in ADAPTERS {
        let said = format!("atomic operations of a libfabric program change memory as C does by the {name} adapter");
        tests.push(Test::on_emulated(said, move |site| passes(site, "atomics", "", profile, 1)).quick());
    }
    let said = "a one-sided operation that the target refuses fails alone, with a reason, and touches no memory";
    tests.push(Test::on_emulated(said, |site| passes(site, "one_sided_refused", "", "", 8)).quick());
    tests
}

/// Checks that a program of the folder passes; each of its `processes` says so.
fn passes(site: &mut Site, program: &str, arguments: &str, profile: &str, processes: usize) -> Result<()> {
    let ((_folder, path), program) = (provider::installed()?, site.program(program)?);
    let job = provider::job(std::iter::once(program.as_str()).chain(arguments.split_whitespace()), &path);
    let adapter = format!("[[device]]\nname = \"hca0\"\n{profile}");
    let said = site.fabric_on(&adapter)?.run(&job)?.checked()?.stdout;
    let passed = said.lines().filter(|line| line.ends_with(" passed, 0 failed")).count();
    ensure!(passed == processes, "{passed} of {processes} processes pass:\n{said}");
    Ok(())
}
