// SPDX-License-Identifier: MIT OR Apache-2.0
//! Carries out a plan, round by round.
//!
//! Grade: setup. Called by the bench. Single-threaded, but for the progress bar's own clock.

use super::catalogue::{self, RawProgram, Reads, Test};
use super::events::{self, Counts};
use super::host_memory;
use super::instructions::{self, Count, Counted};
use super::job::{self, Job, Nodes, Outcome, Stream};
use super::mpi;
use super::perftest;
use super::place::Where;
use super::plan::{Kind, Plan, Step};
use super::progress::Progress;
use super::report::Measurement;
use super::table::size;
use super::transport::Transport;
use super::ucx_perftest;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// Everything a run found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// In the order it was measured.
    pub(crate) measured: Vec<Measurement>,
    /// Where the instructions go, of the last time each was counted.
    pub(crate) instructions: BTreeMap<Count, Counted>,
    /// What became of events, in all runs with a tool that counts them, by the transport's name.
    pub(crate) events: BTreeMap<&'static str, Counts>,
    /// How often a program of perftest was run again, as it could not find out how fast the processor's clock runs.
    pub(crate) repeated: usize,
}

/// Runs the plan and returns everything that was measured.
///
/// # Errors
/// When a program fails or measures less than it was asked for; the message shows what it printed.
pub(crate) fn run(nodes: &dyn Nodes, place: Where, plan: &Plan) -> Result<Found> {
    let progress = Progress::new(plan.values(), plan.rounds);
    let is_of_events = plan.is_of_events();
    let mut bench = Bench { is_of_events, nodes, place, port: FIRST_PORT, progress, found: Found::default() };
    for round in 1..=plan.rounds {
        for step in plan.round(round) {
            bench.step(plan, round, step)?;
        }
    }
    bench.progress.end();
    Ok(bench.found)
}

/// Where the two sides of perftest meet. A port in use a moment ago may not be free, so each run takes the next one.
const FIRST_PORT: u16 = 18515;
const PORTS: u16 = 4000;

/// How often a program of perftest is run in all for one value.
const TRIES: usize = 6;

/// How often instructions are counted in all in a round.
const COUNTS: usize = 3;

struct Bench<'a> {
    /// Whether what events cost is measured.
    is_of_events: bool,
    nodes: &'a dyn Nodes,
    place: Where<'a>,
    port: u16,
    progress: Progress,
    found: Found,
}

impl Bench<'_> {
    fn step(&mut self, plan: &Plan, round: usize, step: Step) -> Result<()> {
        let values = plan.values_of(&step);
        match step {
            Step::Mpi { transport, tests, sizes, seconds_per_row } => {
                let names: Vec<&str> = tests.iter().map(|test| test.name).collect();
                self.progress.says(round, &format!("MPI over {}: {}", transport.name(), names.join(", ")));
                return self.mpi(transport, &tests, &sizes, seconds_per_row, values);
            }
            Step::SmallBuffer => {
                self.progress.says(round, "events through a buffer that is too small");
                self.small_buffer()?;
            }
            Step::Raw { program, bytes } => {
                self.progress.says(round, &format!("{}, {}", program.name, size(bytes)));
                self.raw(program, bytes)?;
            }
            Step::UcxPerftest { runs } => {
                self.progress.says(round, &format!("ucx_perftest, {} runs", runs.len()));
                self.ucx_perftest(&runs)?;
            }
            Step::Instructions(count) => {
                let (test, bytes, over) = (count.test(), size(count.bytes), count.transport.name());
                self.progress.says(round, &format!("{test}, {bytes}, of MPI over {over}"));
                self.instructions(count)?;
            }
            Step::HostMemory => {
                self.progress.says(round, "the emulated adapter beside the host's memory");
                let outcome = job::run(self.nodes, &Job::new(host_memory::command(self.place)))?;
                let outcome = outcome.checked().context("the comparison with the host's memory failed")?;
                self.found.measured.extend(host_memory::parse(&outcome.stdout)?);
            }
        }
        self.progress.advance(values);
        Ok(())
    }

    fn mpi(
        &mut self,
        transport: Transport,
        tests: &[&'static Test],
        sizes: &[u64],
        seconds_per_row: f64,
        expected: usize,
    ) -> Result<()> {
        let argv = mpi::command(self.place, transport, tests, sizes, seconds_per_row)?;
        let mut job =
            Job::new(argv).limit(Duration::from_secs_f64(60.0 + expected as f64 * (10.0 + 4.0 * seconds_per_row)));
        job.env = mpi::environment(self.place, transport);

        let mut found = Vec::new();
        let mut wrong = None;
        let outcome = self.nodes.run(&job, &mut |stream, line| {
            if stream == Stream::Stdout {
                if let Some(counts) = Counts::parse(line) {
                    self.found.events.entry(transport.name()).or_default().add(counts);
                }
                match mpi::measurement(line, transport, tests) {
                    Ok(Some(measurement)) => {
                        self.progress.advance(1);
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
                "MPI over {} measured {} values, and {expected} were expected: {}",
                transport.name(),
                found.len(),
                outcome.shown
            );
        }
        self.found.measured.extend(found);
        if transport == Transport::Logger {
            self.remove_logs()?;
        }
        Ok(())
    }

    /// Logs are long, and nobody reads them.
    fn remove_logs(&self) -> Result<()> {
        let logs = [0, 1].map(|rank| mpi::log(self.place, rank).display().to_string());
        job::run(self.nodes, &Job::new(["rm", &logs[0], &logs[1]]))?.checked().context("the logger wrote no file")?;
        Ok(())
    }

    /// Loses events on purpose, to see that none is lost without being counted.
    fn small_buffer(&mut self) -> Result<()> {
        let tests: Vec<&Test> = catalogue::test("bandwidth").into_iter().collect();
        let mut job = Job::new(mpi::command(self.place, Transport::Buffered, &tests, &[8], 0.05)?);
        job.env = mpi::environment(self.place, Transport::Buffered);
        job.env.push(("OMPI_MCA_btl_ibex_event_buffer".to_owned(), "8".to_owned()));
        let outcome = job::run(self.nodes, &job)?.checked().context("MPI with a small buffer for events failed")?;
        self.found.events.insert(events::SMALL_BUFFER, Counts::of_all(&outcome.stdout));
        Ok(())
    }

    fn raw(&mut self, program: &'static RawProgram, bytes: u64) -> Result<()> {
        let named = || format!("the raw measurement {} of {bytes} bytes failed", program.name);
        let outcome = self.raw_undisturbed(program, bytes).with_context(named)?;
        let value = perftest::parse(&outcome.stdout, program.reads, bytes).with_context(named)?;
        self.found.measured.push(Measurement {
            test: program.name.to_owned(),
            transport: Transport::Raw,
            bytes,
            value: value.value,
            spread: value.spread,
        });
        Ok(())
    }

    /// Runs a program of perftest until it could find out how fast the processor's clock runs.
    fn raw_undisturbed(&mut self, program: &'static RawProgram, bytes: u64) -> Result<Outcome> {
        for _ in 0..TRIES {
            let port = self.next_port();
            let iterations = iterations(program.reads, bytes, self.place.kind);
            let outcome =
                job::run(self.nodes, &Job::new(perftest::command(program, self.place, bytes, iterations, port)))?;
            if !perftest::was_disturbed(&outcome) {
                return outcome.checked();
            }
            self.found.repeated += 1;
            self.progress.remarks(&format!(
                "{} could not measure the processor's clock, as the machine was busy; it is run again",
                program.name
            ));
        }
        bail!(
            "it could not measure the processor's clock in {TRIES} runs: the machine is too busy to measure anything"
        );
    }

    fn ucx_perftest(&mut self, runs: &[(&'static Test, u64)]) -> Result<()> {
        let port = self.next_port();
        let mut job = Job::new(ucx_perftest::command(runs, self.place, port));
        job.env = mpi::ucx_environment(self.place.device);
        let outcome = job::run(self.nodes, &job)?.checked().context("ucx_perftest failed")?;
        self.found.measured.extend(ucx_perftest::parse(&outcome.stdout, runs)?);
        Ok(())
    }

    /// Counts, and counts again where the number is not that of the round before: then something was waited for. What a
    /// tool is told, and when, depends on time, and is counted as it comes.
    fn instructions(&mut self, what: Count) -> Result<()> {
        let transport = what.transport;
        let named = || format!("counting the instructions of MPI over {} failed", transport.name());
        let before = self.found.instructions.get(&what);
        let before = before.map(|counted| instructions::of_mpi(&counted.objects));
        let mut counts: Vec<f64> = before.into_iter().collect();
        for _ in 0..COUNTS {
            let counted = self.count(what).with_context(named)?;
            let count = instructions::of_mpi(&counted.objects);
            let varies = matches!(transport, Transport::Callbacks | Transport::Buffered);
            if self.is_of_events && transport.is_pml() {
                // Of the matching, which have no column among the others.
                self.found.instructions.insert(what, counted);
                return Ok(());
            }
            if varies || before.is_none() || counts.iter().any(|other| instructions::repeats(count, *other)) {
                self.found.measured.push(Measurement {
                    test: what.test().to_owned(),
                    transport,
                    bytes: what.bytes,
                    value: count,
                    spread: 0.0,
                });
                self.found.instructions.insert(what, counted);
                return Ok(());
            }
            self.progress.remarks(&format!(
                "{count:.0} instructions of MPI over {}, and {:.0} before: counted again",
                transport.name(),
                before.unwrap_or(count)
            ));
            counts.push(count);
        }
        bail!("the instructions of MPI over {} do not repeat: {counts:.0?}", transport.name());
    }

    fn count(&self, what: Count) -> Result<Counted> {
        let (argv, file) = instructions::command(self.place, what)?;
        if file.exists() {
            fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
        }
        let mut job = Job::new(argv);
        job.env = mpi::environment(self.place, what.transport);
        let outcome = job::run(self.nodes, &job)?.checked()?;
        instructions::read(&file, Counts::of_all(&outcome.stdout))
    }

    fn next_port(&mut self) -> u16 {
        self.port = FIRST_PORT + (self.port - FIRST_PORT + 1) % PORTS;
        self.port
    }
}

/// So many that a run takes some tenths of a second (on emulated adapters some hundredths): of messages, or of bytes,
/// whichever is less.
pub(crate) fn iterations(reads: Reads, bytes: u64, kind: Kind) -> u32 {
    let (least, most, bytes_in_all): (u64, u64, u64) = match (kind, reads.one_at_a_time()) {
        (Kind::SoftRoce, true) => (10, 1000, 12 << 20),
        (Kind::SoftRoce, false) => (20, 5000, 40 << 20),
        (Kind::SoftHca, true) => (100, 50_000, 256 << 20),
        (Kind::SoftHca, false) => (200, 100_000, 1 << 30),
        (Kind::Adapter, true) => (200, 10_000, 1 << 30),
        (Kind::Adapter, false) => (500, 200_000, 16 << 30),
    };
    (bytes_in_all / bytes.max(1)).clamp(least, most) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_messages_are_counted_and_large_ones_are_measured_by_their_bytes() {
        assert_eq!(iterations(Reads::TypicalLatency, 8, Kind::SoftRoce), 1000);
        assert_eq!(iterations(Reads::Bandwidth, 1 << 20, Kind::SoftRoce), 40);
        assert_eq!(iterations(Reads::Bandwidth, 4 << 20, Kind::SoftRoce), 20);
        assert!(iterations(Reads::MessageRate, 8, Kind::Adapter) > iterations(Reads::MessageRate, 8, Kind::SoftRoce));
    }
}
