// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command `ibex`: parses the command line and calls the subcommand; each has its own file or folder. [`answer`]
//! prints the results. Grade: setup. One thread.

mod answer;
mod bench;
mod doctor;
mod explain;
mod export;
mod facts;
mod flight;
mod info;
mod installed;
mod known_crash;
mod launcher;
mod pages;
mod parameters;
mod run;
mod top;
mod trace;
mod view;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// Tools for ibex, an RDMA transport for MPI
#[derive(Parser)]
#[command(name = "ibex", version, about, propagate_version = true, max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show adapters, ports and the Open MPI of this host, which ports ibex would use, and why not the others
    Info(info::Arguments),
    /// Find what makes jobs slow or fail on this host or between hosts, and say what to do
    Doctor(doctor::Arguments),
    /// Run a job of MPICH, Intel MPI or Open MPI over ibex
    Run(run::RunArguments),
    /// Print the variables by which jobs of an MPI use ibex
    Env(run::EnvArguments),
    /// Measure MPI over ibex, over other transports, and the raw adapter, within this host or between two
    Bench(bench::Arguments),
    /// Show the last events of failed or running processes
    Flight(flight::Arguments),
    /// Show the counts and rates of running processes
    Top(top::Arguments),
    /// Write an HTML page of a traced job: time line, messages, waits
    View(view::Arguments),
    /// Run a job and record its messages
    Trace(trace::Arguments),
    /// Show the protocols, reasons and waits of a traced job's messages
    Explain(explain::Arguments),
    /// Write a trace in the format of another tool: Perfetto, OTF2, Paraver, CSV, Parquet
    Export(export::Arguments),
    /// Write manual pages and shell completions
    #[command(hide = true)]
    Pages(pages::Arguments),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Info(arguments) => info::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Env(arguments) => run::env(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Flight(arguments) => flight::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::View(arguments) => view::run(&arguments),
        Command::Trace(arguments) => trace::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Pages(arguments) => pages::run(&arguments, Arguments::command()).map(|()| ExitCode::SUCCESS),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ibex: {}", answer::reason(&error));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound_and_each_command_has_an_example() {
        let command = Arguments::command();
        command.clone().debug_assert();
        for each in command.get_subcommands().filter(|each| !each.is_hide_set()) {
            let help = each.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{} has no example", each.get_name());
        }
    }
}
