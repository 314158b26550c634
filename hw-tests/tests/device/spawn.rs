// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs that meet peers they did not start with: spawned processes, and groups that connect and accept.
//!
//! In these calls MPI waits in the runtime, without progress: the job hangs if a message has not left although its
//! sender counts it as sent. Setup grade; one test at a time.

use crate::launch::Launch;
use crate::site::Site;
use crate::test::Test;
use anyhow::{Result, bail};
use hw_tests::openmpi::Series;
use hw_tests::{Ending, Outcome};
use std::collections::HashSet;

const TIMES: usize = 10;

/// Number of children, spawned one after the other by a job on two nodes.
const TIMES_ON_TWO_NODES: &str = "4";

/// So many hangs in the runtime, one after the other, are a failure.
const HANGS: usize = 3;

/// Number of ranks that spawn together, and of processes that they spawn.
const FAMILIES: [(usize, &str); 5] = [(1, "2"), (1, "3"), (2, "2"), (2, "4"), (3, "2")];

/// On two nodes: the PML, the number of ranks that spawn, and of processes that they spawn.
const FAMILIES_ON_TWO_NODES: [(&str, usize, &str); 2] = [("ob1", 1, "3"), ("ibex", 3, "2")];

pub(crate) fn tests() -> Vec<Test> {
    let sets_nothing = Test::new("processes that a job which sets nothing spawns talk to each other", |site| {
        let launch = spawning(2, "2", "1").without("pml").without("btl").without("osc");
        (0..3).try_for_each(|_| spawned(site, &launch))
    });
    let on_one_node = families().chain(meetings()).chain(over_the_pml()).chain([sets_nothing]);
    on_one_node.map(Test::device_independent).chain(on_two_nodes()).collect()
}

fn families() -> impl Iterator<Item = Test> {
    FAMILIES.into_iter().map(|(parents, children)| {
        let name = format!("{children} processes spawned by {parents} talk to their parents and among themselves");
        Test::new(name, move |site| (0..TIMES).try_for_each(|_| spawned(site, &spawning(parents, children, "1"))))
    })
}

fn meetings() -> impl Iterator<Item = Test> {
    [2, 4].into_iter().map(|ranks| {
        let name = format!("two groups among {ranks} ranks connect accept and part fifty times");
        Test::new(name, move |site| meets(site, &meeting(ranks, "50")))
    })
}

fn over_the_pml() -> impl Iterator<Item = Test> {
    [("self,ibex", ""), ("self,sm,ibex", " beside shared memory")].into_iter().flat_map(|(btl, by)| {
        let name = format!("over the pml{by}, two groups among 4 ranks connect accept and part fifty times");
        let meeting = Test::new(name, move |site| meets(site, &meeting(4, "50").with("pml", "ibex").with("btl", btl)));
        let name = format!("over the pml{by}, no connection is left to processes that came and went");
        let gone = Test::new(name, move |site| spawned(site, &come_and_go().with("pml", "ibex").with("btl", btl)));
        let families = [(1, "2"), (2, "2")].into_iter().map(move |(parents, children)| {
            let name = format!("over the pml{by}, {children} processes spawned by {parents} talk to each other");
            let launch = move || spawning(parents, children, "1").with("pml", "ibex").with("btl", btl);
            Test::new(name, move |site| (0..3).try_for_each(|_| spawned(site, &launch())))
        });
        families.chain([meeting, gone])
    })
}

fn on_two_nodes() -> impl Iterator<Item = Test> {
    let families = FAMILIES_ON_TWO_NODES.into_iter().map(|(pml, parents, children)| {
        let name =
            format!("over the pml {pml}, {children} processes spawned by {parents} on two nodes talk to each other");
        Test::on_two_nodes(name, move |site| {
            spawned(site, &spawning(parents, children, TIMES_ON_TWO_NODES).with("pml", pml).on_two_nodes().limit(240))
        })
    });
    let name = "two groups among 4 ranks on two nodes connect accept and part twenty times";
    families.chain([Test::on_two_nodes(name, |site| meets(site, &meeting(4, "20").on_two_nodes()))])
}

pub(crate) fn meets(site: &mut Site, launch: &Launch) -> Result<()> {
    if Series::here()?.has_ports() {
        return launch.passes(site);
    }
    site.skip("connect_cycles ports", "this Open MPI's runtime fails MPI_Comm_accept, over any transport");
    Ok(())
}

fn meeting(ranks: usize, cycles: &str) -> Launch {
    Launch::new("connect_cycles", ranks).arguments(&["ports", "--cycles", cycles]).limit(240)
}

/// Two ranks whose children come and go. In the end only these two are connected, at most by each of two ports.
fn come_and_go() -> Launch {
    spawning(2, "2", "3").with_argument("--connections", "2").with("btl_ibex_link_outage", "200").limit(120)
}

pub(crate) fn spawning(parents: usize, children: &str, cycles: &str) -> Launch {
    let arguments = ["spawn", "--cycles", cycles, "--children", children];
    Launch::new("connect_cycles", parents).arguments(&arguments).limit(60)
}

/// Runs a job that spawns, and prints the number of its processes. Debian's PMIx now and then loses a spawned process
/// in `PMIx_Init`, over any transport, before it opens a port: then the job runs again, and the repetition is noted.
pub(crate) fn spawned(site: &mut Site, launch: &Launch) -> Result<()> {
    // Each process that opens a port says so.
    let launch = launch.clone().with("btl_ibex_verbose", "1");
    for _ in 0..HANGS {
        let outcome = launch.run(site)?;
        if !hangs_in_the_runtime(&outcome) {
            return launch.judge(site, outcome);
        }
        site.repeats.push("a job that spawns: a spawned process did not come out of PMIx_Init".to_owned());
    }
    bail!("a spawned process did not come out of PMIx_Init {HANGS} times in a row")
}

/// Whether a job hangs and has fewer processes with a port than it started.
fn hangs_in_the_runtime(outcome: &Outcome) -> bool {
    // After 120 s Open MPI's runtime gives a spawn up.
    let ends = outcome.ending == Ending::TimedOut || outcome.stderr.contains("Operation:  LOOKUP");
    ends && processes_started(&outcome.stdout) > processes_with_a_port(&outcome.stderr)
}

fn processes_started(stdout: &str) -> usize {
    let number = |line: &str| line.strip_prefix("processes ")?.parse::<usize>().ok();
    stdout.lines().filter_map(number).sum()
}

/// The number of processes that wrote `[host:pid] ibex: port ... taken: ...`.
fn processes_with_a_port(stderr: &str) -> usize {
    let taken = |line: &&str| line.contains("ibex: port") && line.contains(" taken: ");
    stderr.lines().filter(taken).filter_map(|line| line.split("] ").next()).collect::<HashSet<_>>().len()
}
