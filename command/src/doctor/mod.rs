// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibex doctor`: finds causes why jobs are slow or fail, and advises. Collects facts ([`crate::facts`]), watches
//! counters and clocks for a moment ([`watch`]), and checks them: [`limits`], [`adapters`], [`openmpi`], [`provider`]
//! and [`watched`] return each problem as a [`Finding`]. With `--host` it starts an agent on each host ([`session`]),
//! compares their facts ([`hosts`]), and connects every two of them, which [`pairs`] checks. Each check is a function
//! of facts, so it is tested without the fault. docs/doctor.md lists all findings. Grade: setup. Tests: in the files;
//! with a device, `hw-tests/tests/device/command.rs` and `doctor.rs`.

mod adapters;
mod agent;
mod finding;
mod hosts;
mod launch;
mod limits;
mod meeting;
mod openmpi;
mod pairs;
mod protocol;
mod provider;
mod remote;
mod session;
mod tournament;
mod watch;
mod watched;

use crate::answer::{self, Form};
use crate::facts::Facts;
use crate::known_crash;
use crate::parameters::{self, Given, Parameters};
use anyhow::{Context, Result};
use finding::{Finding, Findings, Severity};
use launch::Launch;
use session::{Host, Plan, Visit};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[derive(clap::Args)]
#[command(after_help = "Exit status: 0 if nothing is wrong, 1 otherwise.\n\n\
                        Example: two hosts between which a job fails\n  ibex doctor --host node1,node2")]
pub(crate) struct Arguments {
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    given: Given,
    /// Examine these hosts, compare them, and connect every two of them [default: only this host]
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    host: Vec<String>,
    /// How to start ibex on the hosts
    #[arg(long, value_enum, default_value_t)]
    launch: Launch,
    /// The least time to watch counters and clocks
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    watch: f64,
    /// How long to wait for a host, or for two ports to connect
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0)]
    patience: f64,
    /// Look for known crashes in this file: the output of a failed job, or a debugger's backtrace of its core
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Answer the doctor of another host
    #[arg(long, hide = true)]
    agent: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let parameters = parameters::of_a_job(&arguments.given)?;
    let time = |seconds| Duration::try_from_secs_f64(seconds).context("a time cannot be negative");
    let (watch, patience) = (time(arguments.watch)?, time(arguments.patience)?);
    if arguments.agent {
        return agent::serve(&parameters, patience, watch).map(|()| ExitCode::SUCCESS);
    }
    if arguments.host.is_empty() {
        let facts = Facts::here(&parameters);
        let seen = watch::begin(&facts).end(&facts, watch);
        let visit = Visit { hosts: vec![Host { facts, seen, has_ports: false }], ..Visit::default() };
        return say(arguments, &parameters, visit, 1);
    }
    let plan = Plan {
        hosts: &arguments.host,
        launch: arguments.launch,
        given: &arguments.given,
        watch: arguments.watch,
        patience: arguments.patience,
    };
    say(arguments, &parameters, session::visit(&plan), arguments.host.len())
}

fn say(arguments: &Arguments, parameters: &Parameters, visit: Visit, hosts: usize) -> Result<ExitCode> {
    let needed = limits::needed(&parameters.tunables);
    let mut findings = visit.findings;
    findings.extend(visit.hosts.iter().flat_map(|host| judge(host, needed)));
    let facts: Vec<&Facts> = visit.hosts.iter().map(|host| &host.facts).collect();
    findings.extend(hosts::judge(&facts));
    if let Some(output) = &arguments.output {
        findings.extend(crash_in(output)?);
    }
    findings.extend(pairs::judge(&visit.hosts, &visit.meetings, &parameters.tunables));
    let connections = pairs::list(&visit.hosts, &visit.meetings);
    let findings = Findings { all: findings, hosts, is_here: arguments.host.is_empty(), connections };
    answer::print(&arguments.form, &findings)?;
    Ok(if findings.all.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn crash_in(output: &Path) -> Result<Option<Finding>> {
    let text = fs::read(output).with_context(|| format!("cannot read {}", output.display()))?;
    Ok(known_crash::find(&text).map(|crash| {
        let finding = Finding::new(Severity::Error, "known-crash", output.display().to_string(), crash.what);
        finding.expected("no crash").mended(crash.mend)
    }))
}

/// Returns all findings of one host; `needed` is the memory that a process locks, bytes.
fn judge(host: &Host, needed: u64) -> Vec<Finding> {
    let mut findings = limits::judge(&host.facts.host, needed);
    findings.extend(adapters::judge(&host.facts.adapters));
    findings.extend(openmpi::judge(&host.facts));
    findings.extend(provider::judge(&host.facts.provider));
    findings.extend(watched::judge(&host.seen));
    for finding in &mut findings {
        finding.place = format!("{}: {}", host.facts.host.name, finding.place);
    }
    findings
}
