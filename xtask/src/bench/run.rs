// SPDX-License-Identifier: MIT OR Apache-2.0
//! Carries out a plan on a fabric, round by round, and shows how far it is.
//!
//! On a terminal there is a progress bar; elsewhere each start of a program is a line.
//!
//! Grade: setup. Called by the bench. Single-threaded, but for the bar's own clock.

use super::mpi;
use super::perftest;
use super::plan::{Plan, Reads, Step, Test};
use super::report::{Measurement, Transport};
use super::table::size;
use anyhow::{Context, Result, bail};
use hw_tests::{Fabric, Job, Stream};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Runs the plan and returns everything that was measured.
///
/// # Errors
/// When a program fails or measures less than it was asked for; the message shows what it printed.
pub(crate) fn run(fabric: &Fabric, place: mpi::Place, plan: &Plan) -> Result<Vec<Measurement>> {
    let mut bench = Bench { fabric, place, port: FIRST_PORT, progress: Progress::new(plan), measured: Vec::new() };
    for round in 1..=plan.rounds {
        for step in plan.round() {
            match step {
                Step::Mpi { transport, tests, sizes } => bench.mpi(plan, round, transport, &tests, &sizes)?,
                Step::Raw { program, bytes } => {
                    bench.progress.says(round, plan.rounds, &format!("{}, {}", program.name, size(bytes)));
                    bench.raw(program, bytes)?;
                }
            }
        }
    }
    bench.progress.bar.finish_and_clear();
    Ok(bench.measured)
}

/// Where the two sides of perftest meet. A port in use a moment ago may not be free, so each run takes the next one.
const FIRST_PORT: u16 = 18515;
const PORTS: u16 = 4000;

struct Bench<'a> {
    fabric: &'a Fabric,
    place: mpi::Place<'a>,
    port: u16,
    progress: Progress,
    measured: Vec<Measurement>,
}

impl Bench<'_> {
    fn mpi(
        &mut self,
        plan: &Plan,
        round: usize,
        transport: Transport,
        tests: &[&'static Test],
        sizes: &[u64],
    ) -> Result<()> {
        let expected: usize = tests.iter().map(|test| plan.sizes_of(test).count()).sum();
        let argv = mpi::command(self.place, transport, tests, sizes, plan.seconds_per_row)?;
        let mut job =
            Job::new(argv).limit(Duration::from_secs_f64(60.0 + expected as f64 * (10.0 + 4.0 * plan.seconds_per_row)));
        job.env = mpi::environment(transport, self.place.components);
        let names: Vec<&str> = tests.iter().map(|test| test.name).collect();
        self.progress.says(round, plan.rounds, &format!("MPI over {}: {}", transport.name(), names.join(", ")));

        let mut found = Vec::new();
        let mut wrong = None;
        let outcome = self.fabric.spawn(&job)?.wait_with(|stream, line| {
            if stream == Stream::Stdout {
                match mpi::measurement(line, transport, tests) {
                    Ok(Some(measurement)) => {
                        let what = format!("{}: {}, {}", transport.name(), measurement.test, size(measurement.bytes));
                        self.progress.bar.set_message(format!("round {round} of {}: MPI over {what}", plan.rounds));
                        self.progress.bar.inc(1);
                        found.push(measurement);
                    }
                    Ok(None) => {}
                    Err(error) => wrong = Some(error),
                }
            }
        })?;
        let outcome = outcome.checked().with_context(|| format!("MPI over {} failed", transport.name()))?;
        if let Some(error) = wrong {
            return Err(error);
        }
        if found.len() != expected {
            bail!(
                "MPI over {} measured {} values, and {expected} were expected: {outcome}",
                transport.name(),
                found.len()
            );
        }
        self.measured.extend(found);
        Ok(())
    }

    fn raw(&mut self, program: &'static super::plan::RawProgram, bytes: u64) -> Result<()> {
        self.port = FIRST_PORT + (self.port - FIRST_PORT + 1) % PORTS;
        let iterations = iterations(program.reads, bytes, self.place.software);
        let argv = perftest::command(program, self.place.device, bytes, iterations, self.port);
        let outcome = self.fabric.run(&Job::new(argv))?;
        let named = || format!("the raw measurement {} of {bytes} bytes failed", program.name);
        let outcome = outcome.checked().with_context(named)?;
        let value = perftest::parse(&outcome.stdout, program.reads, bytes).with_context(named)?;
        self.progress.bar.inc(1);
        self.measured.push(Measurement {
            test: program.name.to_owned(),
            transport: Transport::Raw,
            bytes,
            value: value.value,
            spread: value.spread,
        });
        Ok(())
    }
}

/// So many that a run takes some tenths of a second: of messages, or of bytes, whichever is less.
fn iterations(reads: Reads, bytes: u64, software: bool) -> u32 {
    let one_at_a_time = matches!(reads, Reads::TypicalLatency | Reads::TimePerMessage);
    let (least, most, bytes_in_all): (u64, u64, u64) = match (software, one_at_a_time) {
        (true, true) => (10, 1000, 12 << 20),
        (true, false) => (20, 5000, 40 << 20),
        (false, true) => (200, 10_000, 1 << 30),
        (false, false) => (500, 200_000, 16 << 30),
    };
    (bytes_in_all / bytes.max(1)).clamp(least, most) as u32
}

struct Progress {
    bar: ProgressBar,
    started: Instant,
    on_terminal: bool,
}

impl Progress {
    fn new(plan: &Plan) -> Self {
        let on_terminal = std::io::stderr().is_terminal();
        let bar = ProgressBar::new((plan.values_of_a_round() * plan.rounds) as u64);
        let style = ProgressStyle::with_template("{elapsed_precise} [{bar:32}] {pos}/{len} {wide_msg}");
        bar.set_style(style.expect("the template is a constant").progress_chars("=> "));
        if on_terminal {
            bar.enable_steady_tick(Duration::from_millis(250));
        }
        Self { bar, started: Instant::now(), on_terminal }
    }

    fn says(&self, round: usize, rounds: usize, what: &str) {
        let text = format!("round {round} of {rounds}: {what}");
        if self.on_terminal {
            self.bar.set_message(text);
        } else {
            println!("[{:4.0} s, {:3}%] {text}", self.started.elapsed().as_secs_f64(), self.percent());
        }
    }

    fn percent(&self) -> u64 {
        self.bar.position() * 100 / self.bar.length().unwrap_or(1).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_messages_are_counted_and_large_ones_are_measured_by_their_bytes() {
        assert_eq!(iterations(Reads::TypicalLatency, 8, true), 1000);
        assert_eq!(iterations(Reads::Bandwidth, 1 << 20, true), 40);
        assert_eq!(iterations(Reads::Bandwidth, 4 << 20, true), 20);
        assert!(iterations(Reads::MessageRate, 8, false) > iterations(Reads::MessageRate, 8, true));
    }
}
