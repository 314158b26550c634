// SPDX-License-Identifier: MIT OR Apache-2.0
//! The MPI programs of hw-tests/mpi on one node.
//!
//! Each program runs over the PML, with the defaults and with parameters that force another path (queues that are
//! always full, no zero-copy, another carrier of the handshake); over ob1 once, and with parameters of the BTL. A
//! program without a test is a failure. [`cases`] has the list. Setup grade; any thread.

mod cases;

use crate::launch::{Launch, with_faults};
use crate::listed::every_program_is_listed;
use crate::site::Site;
use crate::spawn::meets;
use crate::test::Test;
use anyhow::Result;
use cases::{CASES, Case, OF_PML};
use hw_tests::openmpi::Series;

pub(crate) use cases::{COPIED, HELD_BACK, STARVED, WRITTEN};

/// Programs that other files start, all but `waits` (5 s) in the quick tier, too.
static ELSEWHERE: &[&str] = &["abnormal_exit", "pcontrol", "rail_down", "rma_outside", "shared", "waits"];

/// Parameters that only the BTL reads.
const OF_THE_BTL: [&str; 3] = ["btl_ibex_flags", "btl_ibex_min_rdma_pipeline_size", "btl_ibex_zero_copy_min"];

/// Programs that test functions of the BTL alone.
const OF_OB1: [&str; 1] = ["pvars"];

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = vec![
        Test::new("every program in the folder is run by a test, and by a quick one unless that is said", |_| {
            let listed = CASES.iter().chain(OF_PML).map(|case| case.program).chain(ELSEWHERE.iter().copied());
            every_program_is_listed("mpi", listed, file!())?;
            let quick = CASES.iter().chain(OF_PML).filter(|case| case.quick).map(|case| case.program);
            every_program_is_listed("mpi", quick.chain(ELSEWHERE.iter().copied()).chain([LONG]), file!())
        })
        .quick(),
    ];
    for (case, ranks) in OF_PML.iter().flat_map(each_number_of_ranks) {
        tests.push(over_the_pml(case, ranks));
    }
    for (case, ranks) in CASES.iter().flat_map(each_number_of_ranks) {
        let (is_of_pml, is_of_btl) = faces(case);
        if is_of_pml {
            tests.push(over_the_pml(case, ranks));
        }
        if is_of_btl || is_the_run(case, ranks) {
            let test = test(case, named(case, ranks), move |site| run(site, case, ranks, None));
            let is_often = !is_of_pml || OFTEN_OVER_OB1.contains(&case.program);
            let is_on_each = is_often && !is_device_independent(case, ranks);
            let test = if is_on_each { test } else { test.device_independent() };
            tests.push(if is_often { in_its_tier(test, case, ranks) } else { test });
        }
    }
    tests
}

/// Whether a case runs over the PML, and whether it runs over ob1 because no other run tests the same of the BTL.
fn faces(case: &Case) -> (bool, bool) {
    if OF_OB1.contains(&case.program) {
        return (false, true);
    }
    let is_of_btl = |name: &str| OF_THE_BTL.contains(&name);
    let mut names = case.parameters.iter().map(|(name, _)| *name);
    let is_of_btl_alone = !case.parameters.is_empty() && names.clone().all(is_of_btl);
    // The list of BTLs has another meaning over each PML.
    (!is_of_btl_alone, names.any(|name| is_of_btl(name) || name == "btl"))
}

/// Whether this is a program's only run if each has one: the one of the quick tier, or the one of [`LONG`].
fn is_the_run(case: &Case, ranks: usize) -> bool {
    let usual = if case.ranks.contains(&2) { 2 } else { case.ranks[0] };
    (case.quick || case.program == LONG) && ranks == usual
}

fn each_number_of_ranks(case: &'static Case) -> impl Iterator<Item = (&'static Case, usize)> {
    case.ranks.iter().map(move |ranks| (case, *ranks))
}

fn named(case: &Case, ranks: usize) -> String {
    format!("{} on {ranks} ranks", case.sentence)
}

fn test(case: &Case, name: String, run: impl Fn(&mut Site) -> Result<()> + Send + 'static) -> Test {
    if case.faults.is_empty() { Test::new(name, run) } else { Test::on_emulated(name, run) }
}

fn has_usual_settings(case: &Case) -> bool {
    case.parameters.is_empty() && case.faults.is_empty() && !case.arguments.contains("--threads")
}

/// Makes a test of a case over ibex's PML. Each device does one run of each program with the defaults.
fn over_the_pml(case: &'static Case, ranks: usize) -> Test {
    let name = format!("over the pml, {}", named(case, ranks));
    let test = test(case, name, move |site| run(site, case, ranks, Some("ibex")));
    let is_plain = has_usual_settings(case) && ranks == 2 && case.program != LONG;
    in_its_tier(if is_plain { test } else { test.device_independent() }, case, ranks)
}

/// Programs that the quick tier, and each device, runs over ob1 as well as over the PML: messages of every size and
/// mode, connecting, and the adapter's atomics. The faces share ports, registrations and one-sided operations.
const OFTEN_OVER_OB1: &[&str] = &["pt2pt_modes", "traffic", "first_contact", "rma_atomics"];

/// Programs that the quick tier runs in a virtual machine, too: messages, one-sided operations, events.
const QUICK_ON_EACH_DEVICE: &[&str] = &["pt2pt_matching", "rma_transfer", "events"];

fn in_its_tier(test: Test, case: &Case, ranks: usize) -> Test {
    match case.quick && is_the_run(case, ranks) {
        true if QUICK_ON_EACH_DEVICE.contains(&case.program) => test.quick_on_each_device(),
        true => test.quick(),
        false => test,
    }
}

/// Programs that each device also runs with parameters: one of messages, one of connecting.
const ON_EACH_DEVICE: &[&str] = &["pt2pt_modes", "first_contact"];

/// This takes minutes on a slow adapter, with the same result on any.
const LONG: &str = "message_over_2gib";

/// Whether a run on one device is enough. Each device does one run of each program with the defaults and one or two
/// ranks, over the PML; those of [`OFTEN_OVER_OB1`] also over ob1.
fn is_device_independent(case: &Case, ranks: usize) -> bool {
    let is_plain = has_usual_settings(case);
    let is_larger = ranks > 2;
    match case.program {
        "traffic" => !is_plain || ranks != 2,
        LONG => true,
        _ if is_larger => true,
        program if ON_EACH_DEVICE.contains(&program) => false,
        _ => !(case.parameters.is_empty() && case.faults.is_empty()),
    }
}

/// Whether the variable in an argument of `pvars` can grow with these adapters. Messages replace missing atomics.
fn can_grow(argument: &str, site: &Site) -> bool {
    let begins = |names: [&str; 2]| names.iter().any(|name| argument.starts_with(name));
    (site.device().has_atomics() || !argument.starts_with("atomic="))
        && (site.device().has_inline() || !begins(["inline_sent=", "inline_bytes="]))
}

fn run(site: &mut Site, case: &Case, ranks: usize, pml: Option<&str>) -> Result<()> {
    if case.parameters.contains(&("osc", "pt2pt")) && !Series::here()?.has_windows_of_messages() {
        site.skip(case.program, "this Open MPI makes no windows of messages");
        return Ok(());
    }
    let arguments: Vec<&str> = case.arguments.split_whitespace().filter(|word| can_grow(word, site)).collect();
    // If there are more ranks than processors, they take turns.
    let scale = if ranks > 2 { case.scale / 4.0 } else { case.scale };
    let launch = Launch::new(case.program, ranks).arguments(&arguments).limit(case.limit).scale(scale);
    let mut launch = launch.with_all(case.parameters);
    if let Some(pml) = pml {
        launch = launch.with("pml", pml);
    }
    if !case.faults.is_empty() {
        launch = launch.on_adapters(with_faults(case.faults));
    }
    if case.program == "connect_cycles" { meets(site, &launch) } else { launch.passes(site) }
}
