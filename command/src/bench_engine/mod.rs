// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibex bench-engine`: what ibex's engine gives between two processes without MPI, for a column of `ibex bench`.
//!
//! Two of these meet over TCP, as the two sides of perftest do: the server waits, the client says what is measured, and
//! prints it. [`talk`] is what they say there, [`side`] a process with its port, its memory and its connection, and
//! [`rows`] what is timed. Hidden, as `ibex bench` calls it on both hosts. Grade: setup; what is timed has no allocation.
//! One thread. Tests: in `rows`; with a device, hw-tests/tests/device/bench.rs.

mod rows;
mod side;
mod talk;

use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::parameters::{self, Given};
use rows::{Test, tests};
use side::Side;
use talk::{Ask, Talk};

/// Arguments of `ibex bench-engine`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The adapter
    #[arg(long, value_name = "NAME")]
    device: String,
    /// Where the two sides meet
    #[arg(long)]
    port: u16,
    /// These tests
    #[arg(long, value_delimiter = ',', value_parser = rows::test)]
    tests: Vec<&'static Test>,
    /// With messages of so many bytes
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(0..=i64::from(side::LARGEST)))]
    sizes: Vec<u32>,
    /// The time for the samples of one row
    #[arg(long, default_value_t = 0.1)]
    seconds_per_row: f64,
    /// The host of the server; without it, this is the server
    server: Option<String>,
}

/// How long the other side may take to appear.
const PATIENCE: Duration = Duration::from_secs(30);

/// Measures with the other side.
///
/// # Errors
/// There is no such adapter, or the other side is not there, or goes.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let tunables = parameters::of_a_job(&Given::default())?.tunables;
    let mut side = Side::open(&arguments.device, &tunables, u32::from(arguments.server.is_none()))?;
    if let Some(server) = &arguments.server {
        let mut talk = Talk::over(called(server, arguments.port)?)?;
        side.meet(&mut talk)?;
        for (test, bytes) in tests(&arguments.tests, &arguments.sizes) {
            println!("{}", rows::measured(&mut side, &mut talk, test, bytes, arguments.seconds_per_row)?);
        }
        talk.say(&Ask::End)?;
    } else {
        let mut talk = Talk::over(awaited(arguments.port)?)?;
        side.meet(&mut talk)?;
        serve(&mut side, &mut talk)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Does its part of each run until there is no more.
fn serve(side: &mut Side, talk: &mut Talk) -> Result<()> {
    loop {
        match talk.hear()? {
            Ask::End => return Ok(()),
            Ask::Run(run) => {
                side.begin();
                talk.say(&talk::Ready)?;
                rows::answered(side, run)?;
            }
        }
    }
}

fn awaited(port: u16) -> Result<TcpStream> {
    let listener = TcpListener::bind(("0.0.0.0", port)).with_context(|| format!("TCP port {port} cannot be had"))?;
    Ok(listener.accept().context("nobody came")?.0)
}

fn called(server: &str, port: u16) -> Result<TcpStream> {
    let begun = Instant::now();
    loop {
        match TcpStream::connect((server, port)) {
            Ok(stream) => return Ok(stream),
            Err(error) if begun.elapsed() > PATIENCE => {
                return Err(error).with_context(|| format!("{server} does not answer at TCP port {port}"));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
