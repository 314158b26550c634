// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program that runs the jobs of a fabric, by `hw_tests::agent`. `init.sh` or the fabric starts it. Setup grade.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use hw_tests::{agent, vm};

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Runs jobs for the host, until it closes its port.
    Guest {
        /// This node's number.
        #[arg(long)]
        node: usize,
        /// How many nodes there are.
        #[arg(long)]
        nodes: usize,
        /// What failed before this program started.
        #[arg(long, default_value = "")]
        trouble: String,
    },
    /// Runs jobs for the program that started this one, over standard input and output, until it ends.
    Local,
    /// Runs a command in another node, as rsh does.
    Rsh {
        host: String,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<String>,
    },
}

fn main() -> anyhow::Result<ExitCode> {
    match Arguments::parse().role {
        Role::Guest { node, nodes, trouble } => {
            let trouble = Some(trouble).filter(|text| !text.is_empty()).or_else(|| vm::guest_trouble(node));
            agent::serve_port(node, trouble, vm::guest_environment(nodes))?;
            Ok(ExitCode::SUCCESS)
        }
        Role::Local => {
            agent::serve_parent()?;
            Ok(ExitCode::SUCCESS)
        }
        Role::Rsh { host, command } => {
            let status = agent::remote_shell(&host, &command.join(" "))?;
            Ok(ExitCode::from(status as u8))
        }
    }
}
