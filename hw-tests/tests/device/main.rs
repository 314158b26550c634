// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests that need a device, each under a name of its own.
//!
//! `cargo xtask test` runs them and sets what they need: `IBEX_DEVICE` (`soft-roce` or an adapter's name),
//! `IBEX_COMPONENTS` (folder with `mca_btl_ibex.so`), `IBEX_PROGRAMS` (folder with the compiled MPI programs) and
//! `IBEX_ENGINE_TESTS`. Without `IBEX_DEVICE` every test is listed as ignored; with it, a missing device is a failure.
//! `IBEX_TESTS` selects tests, as do the lines of `IBEX_ONLY`, each a part of a name; `IBEX_LIST` has them listed.
//!
//! [`test`] says what a test is, [`site`] boots the nodes, [`launch`] runs mpirun and judges the outcome, [`host`]
//! separates tests of several processes. Setup grade; one test at a time, as all share one fabric.

mod adapters;
mod applications;
mod bounds;
mod choice;
mod command;
mod doctor;
mod endings;
mod engine;
mod executed;
mod faults;
mod flight;
mod host;
mod launch;
mod libfabric;
mod listed;
mod local;
mod memory;
mod mpis;
mod nodes;
mod one_sided;
mod programs;
mod provider;
mod provider_memory;
mod provider_tools;
mod pulled;
mod rails;
mod reasons;
mod recorder;
mod refusals;
mod site;
mod spawn;
mod subnets;
mod test;
mod tools;
mod waits;

use hw_tests::{Selection, runtime_failure};
use libtest_mimic::{Arguments, Failed, Trial};
use site::Site;
use std::env;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use test::{Test, list, select};

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let files = [
        engine::tests,
        programs::tests,
        endings::tests,
        refusals::tests,
        bounds::tests,
        nodes::tests,
        rails::tests,
        executed::tests,
        subnets::tests,
        faults::tests,
        adapters::tests,
        memory::tests,
        spawn::tests,
        choice::tests,
        local::tests,
        applications::tests,
        command::tests,
        doctor::tests,
        flight::tests,
        reasons::tests,
        tools::tests,
        recorder::tests,
        waits::tests,
        provider::tests,
        one_sided::tests,
        provider_memory::tests,
        libfabric::tests,
        mpis::tests,
        provider_tools::tests,
    ];
    let mut tests: Vec<Test> = files.into_iter().flat_map(|tests| tests()).collect();
    if env::var_os("IBEX_LIST").is_some() {
        list(&tests);
        return ExitCode::SUCCESS;
    }
    let selected = Site::from_environment().and_then(|site| {
        let wanted = site.as_ref().map_or(Selection::All, Site::selection);
        let left_out = select(&mut tests, wanted, site.as_ref().map(Site::device))?;
        Ok((site.map(|site| Arc::new(Mutex::new(site))), left_out))
    });
    let (site, left_out) = match selected {
        Ok(selected) => selected,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    if site.is_none() {
        println!("{} device tests are not run, because no device was asked for: run `cargo xtask test`", tests.len());
    }
    if let Some(left_out) = left_out {
        println!("{left_out}");
    }
    let trials = tests.into_iter().map(|test| trial(test, site.clone())).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    if let Some(site) = site {
        let site = site.lock().unwrap_or_else(PoisonError::into_inner);
        for skip in &site.skips {
            println!("skip {skip}");
        }
        for repeat in &site.repeats {
            println!("flaky {repeat}");
        }
        if site.cases > 0 {
            println!("The programs checked {} cases. The slowest tests:", site.cases);
        }
        for (time, name) in site.slowest(8) {
            println!("{:7.1} s  {name}", time.as_secs_f64());
        }
    }
    conclusion.exit_code()
}

/// Returns the place of a kernel crash by soft-RoCE that a test's failure shows. Its kernel modules crash a virtual
/// machine once in some thousand tests, and no program can: the test is repeated once, and the output says so.
fn kernel_crash(failure: &str) -> Option<&str> {
    let crashed = failure.contains("Kernel panic - not syncing");
    failure.lines().find(|line| crashed && line.contains("[rdma_rxe]")).map(str::trim)
}

fn trial(test: Test, site: Option<Arc<Mutex<Site>>>) -> Trial {
    let ignored = site.is_none();
    let (name, shown) = (test.name.clone(), test.name.clone());
    let run = move || {
        let site = site.ok_or("no device was asked for")?;
        // A test that panicked leaves a site that can still be used.
        let mut site = site.lock().unwrap_or_else(PoisonError::into_inner);
        let _place = host::Place::take(test.is_alone).map_err(|error| Failed::from(format!("{error:#}")))?;
        let started = Instant::now();
        let mut done = test.run(&mut site);
        if let Err(error) = &done
            && let text = format!("{error:#}")
            && let Some(crash) = kernel_crash(&text).or_else(|| runtime_failure::of(&text))
        {
            site.repeats.push(format!("{name}: a guest's kernel or Open MPI's runtime had failed: {crash}"));
            done = test.run(&mut site);
        }
        site.took.push((started.elapsed(), name));
        done.map_err(|error| Failed::from(format!("{error:#}")))
    };
    Trial::test(shown, run).with_ignored_flag(ignored)
}
