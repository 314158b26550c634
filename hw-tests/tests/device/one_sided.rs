// SPDX-License-Identifier: MIT OR Apache-2.0
//! One-sided operations of the libfabric provider (`hw-tests/libfabric/one_sided*.c`). Setup grade; one test at a time.

use crate::provider;
use crate::site::Site;
use crate::test::Test;
use anyhow::{Result, ensure};

/// Argument of programs: the adapter does atomic operations.
const BY_ADAPTER: &str = "--by-adapter";

/// An adapter short of everything, which has no atomics.
pub(crate) const MINIMAL: &str = "profile = \"minimal\"\n";

/// Adapters on which they run, by name: with the usual limits, and a minimal one.
const ADAPTERS: [(&str, &str); 2] = [("usual", ""), ("minimal", MINIMAL)];

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for (name, profile) in ADAPTERS {
        let said = format!("one-sided operations of a libfabric program move the right bytes by the {name} adapter");
        tests.push(Test::on_emulated(said, move |site| passes(site, "one_sided", "", profile, 1)).quick());
    }
    for (arguments, accesses) in [
        ("", "all regions"),
        ("--named", "the regions that the program names"),
        (BY_ADAPTER, "regions of which the adapter changes elements"),
    ] {
        let said = format!("a target counts its peers' accesses to {accesses}, and sleeps until there are some");
        tests.push(Test::on_emulated(said, move |site| passes(site, "accesses", arguments, "", 1)).quick());
    }
    for (name, profile) in ADAPTERS {
        let said = format!("atomic operations of a libfabric program change memory as C does by the {name} adapter");
        tests.push(Test::on_emulated(said, move |site| passes(site, "atomics", "", profile, 1)).quick());
    }
    let said = "atomic operations by the adapter change memory as C does, without the target's help";
    tests.push(Test::on_emulated(said, |site| passes(site, "atomics", BY_ADAPTER, "", 1)).quick());
    let said = "atomic operations by an adapter that has none are refused";
    tests.push(Test::on_emulated(said, |site| passes(site, "atomics", "--by-nobody", MINIMAL, 1)).quick());
    let said = "a one-sided operation that the target refuses fails alone, with a reason, and touches no memory";
    tests.push(Test::on_emulated(said, |site| passes(site, "one_sided_refused", "", "", 8)).quick());
    tests
}

/// Checks that a program of the folder passes; each of its `processes` says so.
fn passes(site: &mut Site, program: &str, arguments: &str, profile: &str, processes: usize) -> Result<()> {
    if arguments == BY_ADAPTER && !site.device().has_atomics() {
        site.skip(&format!("{program} {arguments}"), "the adapters have no atomics");
        return Ok(());
    }
    let ((_folder, path), program) = (provider::installed()?, site.program(program)?);
    let job = provider::job(std::iter::once(program.as_str()).chain(arguments.split_whitespace()), &path);
    let adapter = format!("[[device]]\nname = \"hca0\"\n{profile}");
    let said = site.fabric_on(&adapter)?.run(&job)?.checked()?.stdout;
    let passed = said.lines().filter(|line| line.ends_with(" passed, 0 failed")).count();
    ensure!(passed == processes, "{passed} of {processes} processes pass:\n{said}");
    Ok(())
}
