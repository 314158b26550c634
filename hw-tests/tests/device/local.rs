// SPDX-License-Identifier: MIT OR Apache-2.0
//! The PML with processes of the same host: by Open MPI's shared-memory BTL if that is enabled, else by the adapter.
//! Setup grade; one test at a time.

use crate::launch::{Launch, Parameters, says};
use crate::programs::HELD_BACK;
use crate::site::Site;
use crate::test::Test;
use anyhow::ensure;

/// The BTLs of a job whose processes use shared memory.
const SHARED: &str = "self,sm,ibex";
const SAYS: &str = "is reached by shared memory";

/// Makes ibex copy long messages, as if the kernel forbade one process to read from another.
const WITHOUT_CMA: Parameters = &[("btl_sm_single_copy_mechanism", "none")];

/// Programs, numbers of ranks, arguments, and the share of their repetitions.
static PROGRAMS: &[(&str, &[usize], &[&str], f64)] = &[
    ("pt2pt_modes", &[2, 3], &[], 1.0),
    ("pt2pt_matching", &[2, 4], &[], 1.0),
    ("pt2pt_datatypes", &[2], &[], 1.0),
    ("strided_sends", &[3], &[], 1.0),
    ("pending_receives", &[2], &[], 1.0),
    ("pt2pt_truncation", &[2], &[], 1.0),
    ("pt2pt_requests", &[2], &[], 0.3),
    ("pt2pt_flood", &[2, 4], &[], 0.3),
    ("self_messages", &[2], &[], 1.0),
    ("traffic", &[2, 4], &["--seed", "400"], 0.5),
    ("traffic", &[2], &["--threads", "3", "--seed", "500"], 0.5),
    ("collectives", &[4], &[], 0.25),
    ("communicators", &[4], &[], 0.25),
    ("threads", &[2], &[], 1.0),
    ("rma_transfer", &[2], &[], 1.0),
    ("init_finalize", &[2], &["--pending"], 1.0),
    ("unexpected_memory", &[2, 4], &[], 0.05),
];

/// Programs that also run with senders held back: with a fifth of the repetitions, as each message is a round trip.
const OF_HELD_BACK: &[&str] = &[
    "pt2pt_modes",
    "pt2pt_matching",
    "pending_receives",
    "traffic",
    "collectives",
    "communicators",
    "threads",
    "unexpected_memory",
];

const QUICK: &[&str] = &["pt2pt_modes", "traffic"];

/// Programs that depend on the protocol of long messages.
const OF_LONG_MESSAGES: &[&str] =
    &["pt2pt_modes", "pt2pt_datatypes", "pending_receives", "pt2pt_truncation", "traffic"];

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for &(program, all_ranks, arguments, scale) in PROGRAMS {
        for &ranks in all_ranks {
            let launch = move || sharing(program, ranks).arguments(arguments).scale(scale);
            let with = move |parameters: Parameters| launch().with_all(parameters);
            let what = if arguments.contains(&"--threads") { "with threads " } else { "" };
            let name = format!("by shared memory, {program} {what}on {ranks} ranks");
            let test = Test::new(name, move |site| launch().passes(site)).device_independent();
            tests.push(test.quick_if(QUICK.contains(&program) && ranks == 2));
            if OF_LONG_MESSAGES.contains(&program) {
                let name = format!("by shared memory and copies alone, {program} {what}on {ranks} ranks");
                tests.push(Test::new(name, move |site| with(WITHOUT_CMA).passes(site)).device_independent());
            }
            if OF_HELD_BACK.contains(&program) {
                let name = format!(
                    "by shared memory where unexpected messages are held back, {program} {what}on {ranks} ranks"
                );
                let run = move |site: &mut Site| with(HELD_BACK).scale(scale / 5.0).passes(site);
                tests.push(Test::new(name, run).device_independent());
            }
        }
    }
    tests.extend([
        Test::new("processes of a host are reached by shared memory where it is enabled", |site| {
            let outcome = sharing("init_finalize", 2).with("btl_ibex_verbose", "1").succeeds(site)?;
            says(&outcome, &["rank 0 is reached by shared memory", "rank 1 is reached by shared memory"])
        })
        .device_independent(),
        Test::new("processes of a host are reached by the adapter where shared memory is not enabled", |site| {
            let device = site.fabric(1)?.device_name().to_owned();
            let launch = Launch::of_a_short_exchange().with("pml", "ibex").with("btl_ibex_verbose", "1");
            let outcome = launch.succeeds(site)?;
            ensure!(!outcome.stderr.contains(SAYS), "shared memory is used: {outcome}");
            says(&outcome, &[&format!("rank 0 is reached by {device}"), &format!("rank 1 is reached by {device}")])
        })
        .device_independent(),
        Test::on_two_nodes("messages by shared memory and by the adapter are matched together", |site| {
            sharing("traffic", 4).arguments(&["--seed", "600"]).scale(0.3).on_two_nodes().passes(site)
        }),
        Test::on_two_nodes("messages by shared memory and by the adapter are held back together", |site| {
            let launch = sharing("traffic", 4).arguments(&["--seed", "700"]).with_all(HELD_BACK);
            launch.scale(0.1).limit(300).on_two_nodes().passes(site)
        }),
    ]);
    tests
}

fn sharing(program: &'static str, ranks: usize) -> Launch {
    Launch::new(program, ranks).with("pml", "ibex").with("btl", SHARED).limit(180)
}
