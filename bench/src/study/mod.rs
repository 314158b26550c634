// SPDX-License-Identifier: MIT OR Apache-2.0
//! The experiments of the specifications' papers, repeated on ibex: the cost of events, the times of a message, the
//! queues of the matching, and whether planted faults are found.
//!
//! Four experiments compare `ways` of listening to events: `cost` by an empty message and `sizes` by messages of all
//! sizes (Keller et al. 2006, table 2 and figure 2), `run_times` by whole programs and `rma_threads` by puts and gets
//! of threads (Hermanns et al. 2019, figures 1 and 2). `application` records programs with `ibex trace` and summarises
//! their traces (section 5.2.2); `planted` compares planted faults with the result of `ibex explain --waits`. Reads
//! traces, so it is a feature of its own, which `ibex bench` has. Called by `ibex bench --study`. Grade: setup. Tests:
//! in each file; with a device, hw-tests/tests/device/command.rs.

mod application;
mod cost;
mod distribution;
mod page;
mod planted;
mod program;
mod queues;
mod rma_threads;
mod run_times;
mod sizes;
mod ways;

use anyhow::Result;
use serde::Serialize;

use crate::nodes::{Nodes, Where, is_in_path};
use crate::plan::LeftOut;
use application::Application;
use cost::Cost;
use planted::Finding;
use program::Program;
use rma_threads::RmaThreads;
use run_times::RunTimes;
use sizes::Sizes;

/// Extent of a study.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Rounds of messages for each way; the ways take turns.
    rounds: usize,
    /// Time of a size.
    seconds_of_size: f64,
    /// Runs of a whole program for each way.
    program_rounds: usize,
    /// Orders of the matrices of the HPC Challenge: when it is timed, and when it is recorded.
    orders: [u32; 2],
    steps: u32,
    rma_threads: rma_threads::Extent,
    counts: bool,
}

impl Extent {
    /// Returns a first look of a minute; `full`: twenty minutes on two processors, with timed programs of some seconds.
    pub fn new(full: bool) -> Self {
        if full {
            Self {
                rounds: 9,
                seconds_of_size: 0.1,
                program_rounds: 5,
                orders: [1600, 400],
                steps: 3000,
                rma_threads: rma_threads::Extent::FULL,
                counts: true,
            }
        } else {
            Self {
                rounds: 1,
                seconds_of_size: 0.02,
                program_rounds: 1,
                orders: [100, 100],
                steps: 100,
                rma_threads: rma_threads::Extent::QUICK,
                counts: false,
            }
        }
    }
}

/// A finished study: `study.json`.
#[derive(Debug, Serialize)]
pub struct Study {
    device: String,
    remark: String,
    environment: Vec<(String, String)>,
    cost: Cost,
    sizes: Sizes,
    run_times: Vec<RunTimes>,
    rma_threads: Option<RmaThreads>,
    applications: Vec<Application>,
    planted: Vec<Finding>,
    left_out: Vec<LeftOut>,
}

/// Does a study. Traces stay below the folder of the reports.
///
/// # Errors
/// A program fails, or leaves no trace.
pub fn study(nodes: &dyn Nodes, place: Where, extent: Extent) -> Result<Study> {
    let mut left_out = Vec::new();
    let mut lacks = |what: &str, reason: &str| {
        left_out.push(LeftOut { what: what.to_owned(), reason: reason.to_owned() });
    };
    if place.without_events.is_none() {
        lacks("a build without events", "it is part of `cargo xtask bench --study` alone");
    }
    let has_tool = place.programs.join("every_event.so").is_file();
    if !has_tool {
        lacks("a tool without callbacks, and with empty ones", "it is part of `cargo xtask bench --study` alone");
    }
    eprintln!("Measuring messages, {} times each way", extent.rounds);
    let cost = cost::measured(nodes, place, extent.rounds, extent.counts, has_tool)?;
    let sizes = sizes::measured(nodes, place, (extent.rounds, extent.seconds_of_size), has_tool)?;
    let [timed, recorded] = extent.orders.map(Program::hpcc);
    let (mut run_times, mut applications) = (Vec::new(), Vec::new());
    let mut time = |program: &Program| -> Result<()> {
        eprintln!("Running {}, {} times each way", program.name, extent.program_rounds);
        run_times.push(run_times::measured(nodes, place, program, extent.program_rounds, has_tool)?);
        Ok(())
    };
    if is_in_path("lmp") {
        time(&Program::lammps(extent.steps))?;
    } else {
        lacks("lammps", "lmp is not in PATH (Debian: lammps)");
    }
    if is_in_path("hpcc") {
        time(&timed)?;
        applications.push(application::recorded(nodes, place, &recorded)?.0);
    } else {
        lacks("hpcc", "it is not in PATH (Debian: hpcc)");
    }
    let rma_threads = if place.programs.join(rma_threads::PROGRAM).is_file() {
        eprintln!("Measuring puts and gets of threads, {} times each way", extent.rma_threads.rounds);
        Some(rma_threads::measured(nodes, place, extent.rma_threads, has_tool)?)
    } else {
        lacks("puts and gets of threads", "the program is part of `cargo xtask bench --study` alone");
        None
    };
    let (halo, planted) = if place.programs.join("halo").is_file() {
        let (halo, waits) = application::recorded(nodes, place, &Program::halo(place))?;
        (Some(halo), planted::found(&waits))
    } else {
        lacks("halo", "it is part of `cargo xtask bench --study` alone");
        (None, Vec::new())
    };
    applications.extend(halo);
    let (remark, environment) = (place.remark(), place.environment(nodes)?);
    let device = place.title();
    Ok(Study { device, remark, environment, cost, sizes, run_times, rma_threads, applications, planted, left_out })
}

impl Study {
    /// Whether all planted faults were found.
    pub fn is_complete(&self) -> bool {
        self.planted.iter().all(|finding| finding.is_found)
    }
}
