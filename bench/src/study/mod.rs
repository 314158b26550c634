// SPDX-License-Identifier: MIT OR Apache-2.0
//! The studies of the specifications' papers, done again on ibex: what events cost, where a message's time goes, what
//! the queues of the matching hold, and whether faults that were planted are found.
//!
//! `cost` measures an empty message while nobody, or a tool that does nothing, listens (Keller et al. 2006, table 2).
//! `application` runs programs under `ibex trace` and condenses their traces with `queues` and `distribution`
//! (Hermanns et al. 2019, section 5.2.2); `planted` compares what `ibex explain --waits` finds with what was planted.
//! `page` shows all of it. Needs the crate that reads traces, so a feature of its own, which `ibex bench` has.
//!
//! Grade: setup. Called by `ibex bench --study`. Tests: in each file; with a device, hw-tests/tests/device/bench.rs.

mod application;
mod cost;
mod distribution;
mod page;
mod planted;
mod queues;

use anyhow::Result;
use serde::Serialize;

use crate::nodes::environment::environment;
use crate::nodes::here::is_in_path;
use crate::nodes::job::Nodes;
use crate::nodes::place::Where;
use crate::plan::LeftOut;
use application::{Application, Program};
use cost::Cost;
use planted::{Finding, Planted};

/// How much is studied.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// How often an empty message is measured each way, in turns.
    rounds: usize,
    /// The order of the matrices of the HPC Challenge.
    order: u32,
    /// Whether instructions are counted.
    counts: bool,
    planted: Planted,
}

impl Extent {
    /// A first look of some seconds; a `full` one takes minutes on two processors.
    #[must_use]
    pub fn new(full: bool) -> Self {
        let planted = Planted::usual();
        if full {
            Self { rounds: 9, order: 400, counts: true, planted }
        } else {
            Self { rounds: 1, order: 100, counts: false, planted }
        }
    }
}

/// A study that is done: `study.json`.
#[derive(Debug, Serialize)]
pub struct Study {
    device: String,
    remark: String,
    /// What the numbers depend on.
    environment: Vec<(String, String)>,
    cost: Cost,
    applications: Vec<Application>,
    planted: Vec<Finding>,
    /// What this machine does not have.
    left_out: Vec<LeftOut>,
}

/// Does it. `title` names the device for a reader. Traces stay below the folder of the reports.
///
/// # Errors
/// A program that fails, or leaves no trace.
pub fn study(nodes: &dyn Nodes, place: Where, title: &str, extent: Extent) -> Result<Study> {
    let mut left_out = Vec::new();
    let mut lacks = |what: &str, reason: &str| {
        left_out.push(LeftOut { what: what.to_owned(), reason: reason.to_owned() });
    };
    if place.without_events.is_none() {
        lacks("a build without events", "it is part of `cargo xtask bench --study` alone");
    }
    let has_tool = place.programs.join("every_event.so").is_file();
    if !has_tool {
        lacks("empty callbacks", "the tool that has them is part of `cargo xtask bench --study` alone");
    }
    eprintln!("Measuring an empty message, {} times each way", extent.rounds);
    let cost = cost::measured(nodes, place, extent.rounds, extent.counts, has_tool)?;
    let mut applications = Vec::new();
    if is_in_path("hpcc") {
        applications.push(application::recorded(nodes, place, &Program::hpcc(extent.order))?.0);
    } else {
        lacks("hpcc", "it is not in PATH (Debian: hpcc)");
    }
    let (halo, planted) = if place.programs.join("halo").is_file() {
        let (halo, waits) = application::recorded(nodes, place, &Program::halo(place, extent.planted))?;
        (Some(halo), extent.planted.found(&waits))
    } else {
        lacks("halo", "it is part of `cargo xtask bench --study` alone");
        (None, Vec::new())
    };
    applications.extend(halo);
    let (remark, environment) = (place.remark(), environment(nodes, place)?);
    Ok(Study { device: title.to_owned(), remark, environment, cost, applications, planted, left_out })
}

impl Study {
    /// Whether what was planted was found.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.planted.iter().all(|finding| finding.is_found)
    }
}
