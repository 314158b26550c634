// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine's own tests on a device (tests/engine), each under its name. Setup grade; one test at a time.

use crate::site::{Site, faults_applied};
use crate::test::Test;
use anyhow::{Context, Result, bail};
use hw_tests::{Fabric, Job, Outcome};
use std::env;
use std::process::Command;

const VARIABLE: &str = "IBEX_ENGINE_TESTS";

/// An adapter that loses as much as possible when a queue pair is destroyed.
const LOSES_RECEIVES: &str = "[[device]]\nname = \"softhca0\"\n[device.behaviour]\n\
                              purge_cq_on_destroy = \"compact\"\nsrq_wr_lost_on_destroy = \"purged\"\n";

/// An adapter that loses 40 % of the datagrams and duplicates 30 % of the others.
const LOSES_HANDSHAKES: &str = "[[device]]\nname = \"softhca0\"\n\
                                [[fault]]\naction = \"drop\"\nqp_type = \"ud\"\nfraction = 0.4\nseed = 1\n\
                                [[fault]]\naction = \"duplicate\"\nqp_type = \"ud\"\nfraction = 0.3\nseed = 2\n";
const OF_LOST_HANDSHAKES: &str = "lost_and_doubled_handshake_packets_delay_a_connection_and_do_no_more";

/// The tests of this file. If the program is missing, there is one test, which fails with that reason.
pub(crate) fn tests() -> Vec<Test> {
    match listed() {
        Ok((program, names)) => {
            let on_lossy =
                names.iter().filter(|name| name.starts_with("reconnects::")).map(|name| lossy(&program, name));
            let on_lossy: Vec<Test> = on_lossy.collect();
            names.into_iter().map(|name| test(program.clone(), name)).chain(on_lossy).collect()
        }
        Err(error) => vec![Test::new("the tests of the engine can be listed", move |_| anyhow::bail!("{error:#}"))],
    }
}

fn test(program: String, name: String) -> Test {
    if name == OF_LOST_HANDSHAKES {
        return Test::on_emulated(format!("engine {name}"), move |site| {
            let fabric = site.fabric_on(LOSES_HANDSHAKES)?;
            let outcome = run_on(fabric, &program, &name)?;
            faults_applied(fabric, LOSES_HANDSHAKES, &outcome)
        });
    }
    // Tests in files of their own overwhelm a receiver, or attack a port, for seconds each.
    let is_quick = !name.contains("::");
    let test = Test::new(format!("engine {name}"), move |site| run(site, &program, &name));
    test.quick_if(is_quick)
}

/// The same test on an adapter that loses the unpolled completions of a destroyed queue pair.
fn lossy(program: &str, name: &str) -> Test {
    let (program, name) = (program.to_owned(), name.to_owned());
    Test::on_emulated(format!("engine {name} on an adapter that loses receives"), move |site| {
        let said = run_on(site.fabric_on(LOSES_RECEIVES)?, &program, &name)?;
        note_skips(site, &name, &said.stdout);
        Ok(())
    })
}

fn run(site: &mut Site, program: &str, name: &str) -> Result<()> {
    let said = run_on(site.fabric(1)?, program, name)?;
    note_skips(site, name, &said.stdout);
    Ok(())
}

fn run_on(fabric: &Fabric, program: &str, name: &str) -> Result<Outcome> {
    let job = Job::new([program, "--ignored", "--exact", name, "--nocapture"]).env("IBEX_DEVICE", fabric.device_name());
    let outcome = fabric.run(&job)?.checked()?;
    if !outcome.stdout.contains("1 passed") {
        bail!("the test did not run: {outcome}");
    }
    Ok(outcome)
}

fn note_skips(site: &mut Site, name: &str, said: &str) {
    for reason in said.lines().filter_map(|line| line.strip_prefix("skip ")) {
        site.skip(name, reason);
    }
}

/// Returns the program and the names of its tests, which it lists without a device.
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
