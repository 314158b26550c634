// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs that meet peers they did not start with: processes that are spawned, and groups that connect and accept, each
//! many times, on one node and on two.
//!
//! Inside these calls MPI waits in the runtime, where it makes no progress: a message that its sender only believes to
//! have sent is never received, and the job hangs. Setup grade; one test at a time.

use crate::Test;
use crate::launch::Launch;
use crate::site::Site;
use anyhow::{Result, bail};
use hw_tests::{Ending, Outcome};
use std::collections::HashSet;

/// Jobs on one node, and children spawned by each on two.
const TIMES: usize = 10;

/// How often a job may hang in the runtime, one after the other, before that is a failure.
const HANGS: usize = 3;

/// Ranks that spawn together, and how many they spawn.
const FAMILIES: [(usize, &str); 5] = [(1, "2"), (1, "3"), (2, "2"), (2, "4"), (3, "2")];

/// The tests of this file.
pub(crate) fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for (parents, children) in FAMILIES {
        let who = format!("{children} processes spawned by {parents}");
        tests.push(Test::new(format!("{who} talk to who spawned them and among themselves"), move |site| {
            // In a virtual machine it is the two nodes that are tested so often.
            let times = if site.is_disposable() { 1 } else { TIMES };
            (0..times).try_for_each(|_| spawned(site, &spawning(parents, children, "1")))
        }));
        let name = format!("{who} on two nodes talk to who spawned them and among themselves");
        tests.push(Test::on_two_nodes(name, move |site| {
            let times = TIMES.to_string();
            spawned(site, &spawning(parents, children, &times).on_two_nodes().limit(240))
        }));
    }
    for ranks in [2, 4] {
        let meeting = move || Launch::new("connect_cycles", ranks).arguments(&["ports", "--cycles", "50"]).limit(240);
        let who = format!("two groups among {ranks} ranks");
        tests.push(Test::new(format!("{who} connect accept and part fifty times"), move |site| meeting().passes(site)));
        let name = format!("{who} on two nodes connect accept and part fifty times");
        tests.push(Test::on_two_nodes(name, move |site| meeting().on_two_nodes().passes(site)));
    }
    for (parents, children) in [(1, "2"), (2, "2")] {
        for btl in ["self,ibex", "self,vader,ibex"] {
            let by = if btl.contains("vader") { " beside shared memory" } else { "" };
            let name = format!("over the pml{by}, {children} processes spawned by {parents} talk to each other");
            let launch = move || spawning(parents, children, "1").with("pml", "ibex").with("btl", btl);
            tests.push(Test::new(name, move |site| (0..3).try_for_each(|_| spawned(site, &launch()))));
        }
    }
    for (btl, by) in [("self,ibex", ""), ("self,vader,ibex", " beside shared memory")] {
        let name = format!("over the pml{by}, two groups among 4 ranks connect accept and part fifty times");
        let arguments = ["ports", "--cycles", "50"];
        let meeting = move || Launch::new("connect_cycles", 4).arguments(&arguments).limit(240);
        tests.push(Test::new(name, move |site| meeting().with("pml", "ibex").with("btl", btl).passes(site)));
    }
    tests
}

fn spawning(parents: usize, children: &str, cycles: &str) -> Launch {
    let arguments = ["spawn", "--cycles", cycles, "--children", children];
    // Each process that opens a port says so.
    Launch::new("connect_cycles", parents).arguments(&arguments).with("btl_ibex_verbose", "1").limit(60)
}

/// Debian's PMIx now and then loses a spawned process in `PMIx_Init`, over any transport, before one is opened: then
/// the job is run once more, and that is said.
fn spawned(site: &mut Site, launch: &Launch) -> Result<()> {
    for _ in 0..HANGS {
        let outcome = launch.run(site)?;
        if !hangs_in_the_runtime(&outcome) {
            return launch.judge(site, outcome);
        }
        site.repeats.push("connect_cycles spawn: a spawned process did not come out of PMIx_Init".to_owned());
    }
    bail!("a spawned process did not come out of PMIx_Init {HANGS} times in a row")
}

/// Whether a job hangs and one of its processes has not got as far as opening a port: of those started last there are
/// as many as of those that have.
fn hangs_in_the_runtime(outcome: &Outcome) -> bool {
    outcome.ending == Ending::TimedOut && processes_started(&outcome.stdout) > processes_with_a_port(&outcome.stderr)
}

/// How many processes the program says it has asked for.
fn processes_started(stdout: &str) -> usize {
    let number = |line: &str| line.strip_prefix("processes ")?.parse::<usize>().ok();
    stdout.lines().filter_map(number).sum()
}

/// How many processes have said that they took a port: `[host:pid] ibex: port ... taken: ...`.
fn processes_with_a_port(stderr: &str) -> usize {
    let taken = |line: &&str| line.contains("ibex: port") && line.contains(" taken: ");
    stderr.lines().filter(taken).filter_map(|line| line.split("] ").next()).collect::<HashSet<_>>().len()
}
