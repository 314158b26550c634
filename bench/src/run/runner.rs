// SPDX-License-Identifier: MIT OR Apache-2.0
//! What runs each program of a plan: jobs on the nodes, ports where two sides meet, the progress.
//!
//! Grade: setup. Used by [`super`] and by the file of each kind of program. Tests: in [`super`].

use super::progress::Progress;
use crate::nodes::job::{self, Job, Nodes, Outcome};
use crate::nodes::place::Where;
use crate::nodes::sides::Sides;
use anyhow::{Context, Result};

/// Why no job can be run any more.
#[derive(Debug)]
pub(super) struct NodesGone;

impl std::fmt::Display for NodesGone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no program can be run any more")
    }
}

/// Where the two sides of perftest meet. A port in use a moment ago may not be free, so each run takes the next one.
const FIRST_PORT: u16 = 18515;
const PORTS: u16 = 4000;

/// Runs programs where a place says.
pub(super) struct Runner<'a> {
    pub(super) nodes: &'a dyn Nodes,
    pub(super) place: Where<'a>,
    pub(super) progress: Progress,
    port: u16,
}

impl<'a> Runner<'a> {
    pub(super) fn new(nodes: &'a dyn Nodes, place: Where<'a>, progress: Progress) -> Self {
        Self { nodes, place, progress, port: FIRST_PORT }
    }

    /// Runs a job whose lines matter at its end alone.
    pub(super) fn job(&self, job: &Job) -> Result<Outcome> {
        job::run(self.nodes, job).context(NodesGone)
    }

    /// Runs both sides of a program: on two hosts where there are two, and otherwise on one by a job that starts both.
    pub(super) fn both_sides(&self, sides: &Sides) -> Result<Outcome> {
        match self.place.hosts {
            Some(hosts) => hosts.both_sides(sides),
            None => self.job(&sides.on_one_node(self.place.processors)),
        }
    }

    /// Where the two sides of the next program meet.
    pub(super) fn next_port(&mut self) -> u16 {
        self.port = FIRST_PORT + (self.port - FIRST_PORT + 1) % PORTS;
        self.port
    }
}
