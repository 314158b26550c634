// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibex bench-engine`: measures the engine between two processes without MPI, for a column of `ibex bench`.
//!
//! Server and client connect over TCP, as in perftest: the server waits, the client chooses the measurements and prints
//! them. [`protocol`] is their protocol, [`side`] a process with its port, memory and connection, [`rows`] the timed loops.
//! The command is hidden: `ibex bench` calls it on both hosts. Grade: setup; the timed loops do not allocate. One
//! thread. Tests: in `rows`; with a device, hw-tests/tests/device/bench.rs.

mod protocol;
mod rows;
mod side;

use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::parameters::{self, Given};
use protocol::{Ask, Talk};
use rows::{Test, tests};
use side::Side;

/// Arguments of `ibex bench-engine`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The adapter
    #[arg(long, value_name = "NAME")]
    device: String,
    /// The TCP port on which the server waits
    #[arg(long)]
    port: u16,
    /// These tests
    #[arg(long, value_delimiter = ',', value_parser = rows::test)]
    tests: Vec<&'static Test>,
    /// Message sizes in bytes
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(0..=i64::from(side::LARGEST)))]
    sizes: Vec<u32>,
    /// The host of the server; without it, this is the server
    server: Option<String>,
}

/// How long to wait for the other side.
const PATIENCE: Duration = Duration::from_secs(30);

/// Measures with the other side.
///
/// # Errors
/// There is no such adapter, or the other side does not appear, or ends.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let tunables = parameters::of_a_job(&Given::default())?.tunables;
    let mut side = Side::open(&arguments.device, &tunables, u32::from(arguments.server.is_none()))?;
    if let Some(server) = &arguments.server {
        let mut talk = Talk::over(called(server, arguments.port)?)?;
        side.meet(&mut talk)?;
        for (test, bytes) in tests(&arguments.tests, &arguments.sizes) {
            println!("{}", rows::measured(&mut side, &mut talk, test, bytes)?);
        }
        talk.say(&Ask::End)?;
    } else {
        let mut talk = Talk::over(awaited(arguments.port)?)?;
        side.meet(&mut talk)?;
        serve(&mut side, &mut talk)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The server's part of all runs.
fn serve(side: &mut Side, talk: &mut Talk) -> Result<()> {
    loop {
        match talk.hear()? {
            Ask::End => return Ok(()),
            Ask::Run(run) => {
                side.begin();
                talk.say(&protocol::Ready)?;
                rows::answered(side, run)?;
            }
        }
    }
}

fn awaited(port: u16) -> Result<TcpStream> {
    let listener = TcpListener::bind(("0.0.0.0", port)).with_context(|| format!("cannot listen on TCP port {port}"))?;
    Ok(listener.accept().context("nobody came")?.0)
}

fn called(server: &str, port: u16) -> Result<TcpStream> {
    let begun = Instant::now();
    loop {
        match TcpStream::connect((server, port)) {
            Ok(stream) => return Ok(stream),
            Err(error) if begun.elapsed() > PATIENCE => {
                return Err(error).with_context(|| format!("{server} does not answer on TCP port {port}"));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
