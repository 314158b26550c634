// SPDX-License-Identifier: MIT OR Apache-2.0
//! The doctor's agent on each host: reports the host's facts, and connects to other hosts on request. Started by
//! `remote`; uses the protocol of [`super::protocol`] over standard input and output, and ends with its input. Grade:
//! setup; one thread reads, another does the rest. Tests: with a device, `hw-tests/tests/device/command.rs`.

use super::meeting::Ports;
use super::protocol::{self, Answer, Ask};
use super::watch;
use crate::facts::Facts;
use crate::parameters::Parameters;
use anyhow::{Context, Result};
use std::io::{self, BufRead, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Pause between polls while no connection is being made, and number of polls then: ports look for new connections only
/// once in many polls.
const REST: Duration = Duration::from_millis(1);
const POLLS: usize = 64;

/// Answers requests until the input ends. `patience` bounds the time for a connection; `watch` is the least time in
/// which counters and clocks are watched.
pub(super) fn serve(parameters: &Parameters, patience: Duration, watch: Duration) -> Result<()> {
    let facts = Facts::here(parameters);
    let watching = watch::begin(&facts);
    say(&Answer::Here(Box::new(facts.clone())))?;
    let asked = listen();
    let mut ports: Option<Ports> = None;
    loop {
        let rest = if ports.is_some() { REST } else { Duration::from_hours(1) };
        match asked.recv_timeout(rest) {
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Ok(Ask::End) => {
                drop(ports);
                return say(&Answer::Ended(watching.end(&facts, watch)));
            }
            Ok(Ask::Open { host }) => {
                let (opened, published, failures) = Ports::open(host, &parameters.tunables, patience);
                ports = Some(opened);
                say(&Answer::Opened { ports: published, failures })?;
            }
            Ok(Ask::Know(published)) => {
                let failures = ports.as_ref().context("no port is open")?.know(&published);
                say(&Answer::Known { failures })?;
            }
            Ok(Ask::Meet { host, seconds }) => {
                let within = Duration::try_from_secs_f64(seconds)?;
                say(&Answer::Met(ports.as_mut().context("no port is open")?.meet(host, within)))?;
            }
        }
        if let Some(ports) = &mut ports {
            (0..POLLS).for_each(|_| ports.poll());
        }
    }
}

fn say(answer: &Answer) -> Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(protocol::line(answer)?.as_bytes())?;
    output.flush().context("the doctor no longer reads the answers")
}

/// Returns the requests as they arrive, until the input ends or a request is unknown.
fn listen() -> Receiver<Ask> {
    let (sender, asked) = mpsc::channel();
    thread::spawn(move || {
        let lines = io::stdin().lock().lines().map_while(Result::ok);
        // Skips foreign lines.
        for ask in lines.filter_map(|line| protocol::read(&line)).map_while(Result::ok) {
            if sender.send(ask).is_err() {
                return;
            }
        }
    });
    asked
}
