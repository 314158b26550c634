// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a command on a machine with an RDMA device, for a developer at a terminal. Prints the command's output and ends
//! with its status (124 for its time limit, 128 + N for signal N). Setup grade.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use hw_tests::device::SOFT_ROCE;
use hw_tests::{Device, Ending, Fabric, Job, Options, Stream};

/// Runs a command on a machine that has an RDMA device: a virtual one with soft-RoCE, or this one.
#[derive(Parser)]
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
    /// The command; `sh -c '...'` for more than one.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let here = std::env::current_dir().context("find the current folder")?;
    let limit = Duration::from_secs(arguments.limit);
    let job = Job::new(arguments.command).on(arguments.node).limit(limit).cwd(here);
    let options = Options { nodes: arguments.nodes, adapters: arguments.config };
    let outcome = Fabric::open_with(&arguments.device, &options)?.run_with(&job, |stream, line| match stream {
        Stream::Stdout => println!("{line}"),
        Stream::Stderr => eprintln!("{line}"),
    })?;
    if !matches!(outcome.ending, Ending::Exited(_)) {
        eprintln!("fabric: `{}` {} after {:.1} s", outcome.command, outcome.ending, outcome.elapsed.as_secs_f64());
    }
    Ok(ExitCode::from(outcome.status() as u8))
}
