// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a command where an RDMA device is: `fabric [--device D] [--nodes N] [--limit SECONDS] [--env K=V] -- CMD ARGS`.
//!
//! For people. Prints what the command prints and ends with its status (124 for its time limit, 128 + N for signal N).
//! Setup grade. Tests: at the end of this file.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use hw_tests::device::SOFT_ROCE;
use hw_tests::{Device, Ending, Fabric, Job, Options, Stream};

/// Runs a command on a machine that has an RDMA device: a virtual one with soft-RoCE, or this one.
#[derive(Clone, Debug, Parser)]
#[command(name = "fabric", arg_required_else_help = true)]
struct Arguments {
    /// `soft-roce`, `softhca` (emulated adapters), or the name of an RDMA device of this machine.
    #[arg(long, default_value = SOFT_ROCE)]
    device: Device,
    /// Describes the emulated adapters of `--device softhca` and their faults [default: two rails].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How many nodes; two reach each other as node0 and node1.
    #[arg(long, default_value_t = 1)]
    nodes: usize,
    /// The node to run the command in.
    #[arg(long, default_value_t = 0)]
    node: usize,
    /// Seconds after which the command is killed.
    #[arg(long, default_value_t = 600)]
    limit: u64,
    /// Sets an environment variable of the command; may be repeated.
    #[arg(long = "env", value_name = "K=V", value_parser = variable)]
    variables: Vec<(String, String)>,
    /// The folder to run in [default: this one].
    #[arg(long)]
    cwd: Option<PathBuf>,
    /// MiB of memory of each node.
    #[arg(long)]
    memory: Option<u64>,
    /// Processors of each node.
    #[arg(long)]
    cpus: Option<usize>,
    /// The command; `sh -c '...'` for more than one.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is not NAME=VALUE")),
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let job = job_of(&arguments)?;
    let outcome = open(&arguments)?.run_with(&job, print)?;
    if !matches!(outcome.ending, Ending::Exited(_)) {
        eprintln!("fabric: `{}` {} after {:.1} s", outcome.command, outcome.ending, outcome.elapsed.as_secs_f64());
    }
    Ok(ExitCode::from(outcome.status() as u8))
}

fn print(stream: Stream, line: &str) {
    match stream {
        Stream::Stdout => println!("{line}"),
        Stream::Stderr => eprintln!("{line}"),
    }
}

fn open(arguments: &Arguments) -> anyhow::Result<Fabric> {
    let mut options = Options::new(arguments.nodes);
    options.memory = arguments.memory.unwrap_or(options.memory);
    options.cpus = arguments.cpus.unwrap_or(options.cpus);
    options.adapters.clone_from(&arguments.config);
    Fabric::open_with(&arguments.device, &options)
}

fn job_of(arguments: &Arguments) -> anyhow::Result<Job> {
    let here = std::env::current_dir().context("find the current folder")?;
    let folder = arguments.cwd.as_ref().map_or_else(|| here.clone(), |folder| here.join(folder));
    let job = Job::new(arguments.command.iter().cloned())
        .on(arguments.node)
        .limit(Duration::from_secs(arguments.limit))
        .cwd(folder);
    Ok(arguments.variables.iter().fold(job, |job, (name, value)| job.env(name, value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(line.split(' '))
    }

    #[test]
    fn options_before_the_dashes_are_ours_and_after_them_the_commands() {
        let arguments = parsed("fabric --nodes 2 --env A=B=C --limit 5 -- mpirun --limit 9").unwrap();
        assert_eq!((arguments.nodes, arguments.limit), (2, 5));
        assert_eq!(arguments.variables, [("A".to_owned(), "B=C".to_owned())]);
        assert_eq!(arguments.command, ["mpirun", "--limit", "9"]);
        let job = job_of(&arguments).unwrap();
        assert_eq!(job.env, [("A".to_owned(), "B=C".to_owned())]);
    }

    #[test]
    fn without_a_command_there_is_nothing_to_run() {
        assert!(parsed("fabric --nodes 2").is_err());
    }

    #[test]
    fn a_variable_without_a_name_is_refused() {
        assert!(parsed("fabric --env =x -- ls").is_err());
        assert!(parsed("fabric --env x -- ls").is_err());
    }
}
