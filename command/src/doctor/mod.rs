// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibex doctor`: what makes jobs slow, or fail, and what to do about it.
//!
//! Looks at the facts ([`crate::facts`]), watches counters and clocks for a moment ([`watch`]), and judges: [`limits`],
//! [`adapters`], [`openmpi`], [`watched`] each say what they find, as a [`Finding`]. With `--host` the facts of others
//! are fetched ([`remote`]) and compared ([`hosts`]). Each judgement is a function of facts, so that it is tested
//! without what it looks for. Grade: setup. Tests: in the files; with a device, `hw-tests/tests/device/command.rs`.

mod adapters;
mod finding;
mod hosts;
mod limits;
mod openmpi;
mod remote;
mod watch;
mod watched;

use crate::answer::{self, Form};
use crate::facts::Facts;
use crate::parameters::{self, Given};
use anyhow::Result;
use finding::{Finding, Findings};
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of `ibex doctor`.
#[derive(clap::Args)]
#[command(after_help = "Exit status: 0 where nothing is wrong, 1 where something is.\n\n\
                        Example: two hosts between which a job fails\n  ibex doctor --host node1,node2")]
pub(crate) struct Arguments {
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    given: Given,
    /// Look at these hosts, by ssh, and compare them [default: this host alone]
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    host: Vec<String>,
    /// How long to watch counters and clocks
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    watch: f64,
    /// Print the facts and what was seen of them, for another host's doctor
    #[arg(long, hide = true)]
    facts: bool,
}

/// Looks, judges, and prints what was found.
///
/// # Errors
/// A parameter that is not permitted, or a host that cannot be asked.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let parameters = parameters::of_a_job(&arguments.given)?;
    if arguments.host.is_empty() || arguments.facts {
        let facts = Facts::here(&parameters);
        let seen = watch::watch(&facts, Duration::try_from_secs_f64(arguments.watch)?);
        let host = remote::Host { facts, seen };
        if arguments.facts {
            println!("{}", serde_json::to_string(&host)?);
            return Ok(ExitCode::SUCCESS);
        }
        return say(arguments, &[host]);
    }
    let words = remote::words(&arguments.given, arguments.watch);
    say(arguments, &remote::ask_all(&arguments.host, &words)?)
}

fn say(arguments: &Arguments, hosts: &[remote::Host]) -> Result<ExitCode> {
    let own = hosts.iter().flat_map(|host| judge(host, &arguments.given));
    let facts: Vec<&Facts> = hosts.iter().map(|host| &host.facts).collect();
    let findings = Findings { findings: own.chain(hosts::judge(&facts)).collect(), hosts: hosts.len() };
    answer::print(&arguments.form, &findings)?;
    Ok(if findings.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// All that is found of one host.
fn judge(host: &remote::Host, given: &Given) -> Vec<Finding> {
    let needed = parameters::of_a_job(given).map_or(0, |parameters| limits::needed(&parameters.tunables));
    let mut findings = limits::judge(&host.facts.host, needed);
    findings.extend(adapters::judge(&host.facts.adapters));
    findings.extend(openmpi::judge(&host.facts));
    findings.extend(watched::judge(&host.seen));
    for finding in &mut findings {
        finding.place = format!("{}: {}", host.facts.host.name, finding.place);
    }
    findings
}
