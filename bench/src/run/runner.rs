// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs each program of a plan: jobs on the nodes, ports for two sides; and shows the progress of the bench on standard
//! error, because standard output may be the report: a progress bar on a terminal, else a line for each start of a
//! program. Used by [`super`] and by the file of each kind of program. Grade: setup. Tests: in [`super`].

use crate::nodes::{Job, Nodes, Outcome, Sides, Where, job};
use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct NodesGone;

impl std::fmt::Display for NodesGone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no program can be run any more")
    }
}

/// Ports of perftest. A port in use a moment ago may not be free, so each run takes the next one.
const FIRST_PORT: u16 = 18515;
const PORTS: u16 = 4000;

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

    pub(super) fn job(&self, job: &Job) -> Result<Outcome> {
        job::run(self.nodes, job).context(NodesGone)
    }

    /// Runs both sides of a program: on the two hosts, or on one by a job that starts both.
    pub(super) fn both_sides(&self, sides: &Sides) -> Result<Outcome> {
        match self.place.hosts {
            Some(hosts) => hosts.both_sides(sides),
            None => self.job(&sides.on_one_node(self.place.processors)),
        }
    }

    pub(super) fn next_port(&mut self) -> u16 {
        self.port = FIRST_PORT + (self.port - FIRST_PORT + 1) % PORTS;
        self.port
    }
}

pub(crate) struct Progress {
    bar: ProgressBar,
    rounds: usize,
    started: Instant,
    on_terminal: bool,
}

impl Progress {
    pub(crate) fn new(values: usize, rounds: usize) -> Self {
        let on_terminal = std::io::stderr().is_terminal();
        let bar = ProgressBar::new(values as u64);
        let style = ProgressStyle::with_template("{elapsed_precise} [{bar:32}] {pos}/{len} {wide_msg}");
        bar.set_style(style.expect("the template is a constant").progress_chars("=> "));
        if on_terminal {
            bar.enable_steady_tick(Duration::from_millis(250));
        }
        Self { bar, rounds, started: Instant::now(), on_terminal }
    }

    pub(crate) fn says(&self, round: usize, what: &str) {
        let text = format!("round {round} of {}: {what}", self.rounds);
        if self.on_terminal {
            self.bar.set_message(text);
        } else {
            let percent = self.bar.position() * 100 / self.bar.length().unwrap_or(1).max(1);
            eprintln!("[{:4.0} s, {percent:3}%] {text}", self.started.elapsed().as_secs_f64());
        }
    }

    /// Prints a line that stays on the screen.
    pub(crate) fn remarks(&self, what: &str) {
        if self.on_terminal {
            self.bar.println(what);
        } else {
            eprintln!("{what}");
        }
    }

    pub(crate) fn expect(&self, values: usize) {
        self.bar.inc_length(values as u64);
    }

    pub(crate) fn advance(&self, values: usize) {
        self.bar.inc(values as u64);
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
