// SPDX-License-Identifier: MIT OR Apache-2.0
//! Carries out a plan, round by round.
//!
//! What fails is written down, and the rest goes on: a bench of minutes is not worth less for one value. What failed
//! after a long time is not started again in later rounds.
//!
//! Grade: setup. Called by the bench. Single-threaded, but for the progress bar's own clock.

use super::catalogue::{self, By, RawProgram, Reads, Test};
use super::engine;
use super::events::{self, Counts};
use super::host_memory;
use super::hosts::Sides;
use super::instructions::{self, Count, Counted};
use super::job::{self, Job, Nodes, Outcome, Stream};
use super::mpi;
use super::perftest;
use super::place::Where;
use super::plan::{Kind, Plan, Step};
use super::progress::Progress;
use super::report::{Failure, Measurement};
use super::table::size;
use super::transport::Transport;
use super::ucx_perftest;
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

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
    /// What could not be measured.
    pub(crate) failures: Vec<Failure>,
}

/// Why no job can be run any more.
#[derive(Debug)]
struct NodesGone;

impl std::fmt::Display for NodesGone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no program can be run any more")
    }
}

/// Why a program of perftest has no value, though it works.
#[derive(Debug)]
struct Busy;

impl std::fmt::Display for Busy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "it could not measure the processor's clock in {TRIES} runs, as the machine is too busy")
    }
}

impl std::error::Error for Busy {}

/// Runs the plan and returns everything that was measured.
///
/// # Errors
/// When no program can be run any more.
pub(crate) fn run(nodes: &dyn Nodes, place: Where, plan: &Plan) -> Result<Found> {
    let progress = Progress::new(plan.values(), plan.rounds);
    let is_of_events = plan.is_of_events();
    let (found, given_up) = (Found::default(), BTreeSet::new());
    let mut bench = Bench { is_of_events, nodes, place, port: FIRST_PORT, progress, given_up, found };
    for round in 1..=plan.rounds {
        for step in plan.round(round) {
            bench.step(plan, round, &step)?;
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

/// What fails after this time is not started again: what hangs would do so in each round.
const LONG: Duration = Duration::from_mins(1);

struct Bench<'a> {
    /// Whether what events cost is measured.
    is_of_events: bool,
    nodes: &'a dyn Nodes,
    place: Where<'a>,
    port: u16,
    progress: Progress,
    /// The names of steps that are not worth another try.
    given_up: BTreeSet<String>,
    found: Found,
}

impl Bench<'_> {
    /// Does a step, or writes down that it failed.
    fn step(&mut self, plan: &Plan, round: usize, step: &Step) -> Result<()> {
        let (name, values) = (named(step), plan.values_of(step));
        if self.given_up.contains(&name) {
            self.progress.advance(values);
            return Ok(());
        }
        self.progress.says(round, &name);
        let (before, started) = (self.found.measured.len(), Instant::now());
        let Err(error) = self.done(step, values) else { return Ok(()) };
        if error.is::<NodesGone>() {
            return Err(error);
        }
        self.progress.remarks(&format!("{name}: {error:#}"));
        let found: Vec<_> =
            self.found.measured[before..].iter().map(|found| (found.test.clone(), found.bytes)).collect();
        let Some((transport, tests)) = of_step(plan, step) else { return Err(error) };
        self.progress.advance(values.saturating_sub(found.len()));
        if started.elapsed() > LONG {
            self.given_up.insert(name);
        }
        let mut values = plan.names_of(step);
        values.retain(|value| !found.contains(value));
        let (busy, reason) = (error.is::<Busy>(), format!("{error:#}"));
        let transport = transport.name().to_owned();
        self.found.failures.push(Failure { transport, tests, values, round, reason, busy, missing: true });
        Ok(())
    }

    fn done(&mut self, step: &Step, values: usize) -> Result<()> {
        match step {
            Step::Mpi { transport, tests, sizes, seconds_per_row } => {
                return self.mpi(*transport, tests, sizes, *seconds_per_row, values);
            }
            Step::SmallBuffer => self.small_buffer()?,
            Step::Raw { program, bytes } => self.raw(program, *bytes)?,
            Step::UcxPerftest { runs } => self.ucx_perftest(runs)?,
            Step::Engine { tests, sizes, seconds_per_row } => self.engine(tests, sizes, *seconds_per_row, values)?,
            Step::Instructions(count) => self.instructions(*count)?,
            Step::HostMemory => {
                let outcome = self.job(&Job::new(host_memory::command(self.place)))?;
                let outcome = outcome.checked().context("the comparison with the host's memory failed")?;
                self.found.measured.extend(host_memory::parse(&outcome.stdout)?);
            }
        }
        self.progress.advance(values);
        Ok(())
    }

    /// Runs a job whose lines matter at its end alone.
    fn job(&self, job: &Job) -> Result<Outcome> {
        job::run(self.nodes, job).context(NodesGone)
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
        // The processors do a software adapter's work, too, and may be those of a virtual machine.
        let start = if self.place.kind == Kind::SoftRoce { 300.0 } else { 60.0 };
        let limit = start + expected as f64 * (10.0 + 4.0 * seconds_per_row);
        let mut job = Job::new(argv).limit(Duration::from_secs_f64(limit));
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
        });
        // What it measured before it failed, it measured.
        let measured = found.len();
        self.found.measured.append(&mut found);
        let outcome = outcome.context(NodesGone)?;
        let outcome = outcome.checked().with_context(|| format!("MPI over {} failed", transport.name()))?;
        if let Some(error) = wrong {
            return Err(error);
        }
        if measured != expected {
            bail!(
                "MPI over {} measured {} values, and {expected} were expected: {}",
                transport.name(),
                measured,
                outcome.shown
            );
        }
        if transport == Transport::Logger {
            self.remove_logs()?;
        }
        if transport == Transport::Recorded {
            let trace = mpi::trace(self.place).display().to_string();
            self.job(&Job::new(["rm", "-r", &trace]))?.checked().context("the recorder left no trace")?;
        }
        Ok(())
    }

    /// Logs are long, and nobody reads them.
    fn remove_logs(&self) -> Result<()> {
        let logs = [0, 1].map(|rank| mpi::log(self.place, rank).display().to_string());
        self.job(&Job::new(["rm", &logs[0], &logs[1]]))?.checked().context("the logger wrote no file")?;
        Ok(())
    }

    /// Loses events on purpose, to see that none is lost without being counted.
    fn small_buffer(&mut self) -> Result<()> {
        let tests: Vec<&Test> = catalogue::test("bandwidth").into_iter().collect();
        let mut job = Job::new(mpi::command(self.place, Transport::Buffered, &tests, &[8], 0.05)?);
        job.env = mpi::environment(self.place, Transport::Buffered);
        job.env.push(("OMPI_MCA_btl_ibex_event_buffer".to_owned(), "8".to_owned()));
        let outcome = self.job(&job)?.checked().context("MPI with a small buffer for events failed")?;
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
            let outcome = match self.place.hosts {
                Some(hosts) => {
                    let line = perftest::line(program, self.place, bytes, iterations, port);
                    hosts.both_sides(&Sides { line: &line, before: "", after: "", env: Vec::new(), port })?
                }
                None => self.job(&Job::new(perftest::command(program, self.place, bytes, iterations, port)))?,
            };
            if !perftest::was_disturbed(&outcome) {
                return outcome.checked();
            }
            self.found.repeated += 1;
            self.progress.remarks(&format!(
                "{} could not measure the processor's clock, as the machine was busy; it is run again",
                program.name
            ));
        }
        Err(Busy.into())
    }

    fn ucx_perftest(&mut self, runs: &[(&'static Test, u64)]) -> Result<()> {
        let port = self.next_port();
        let env = mpi::ucx_environment(self.place);
        let outcome = match self.place.hosts {
            Some(hosts) => {
                let (line, before) = (ucx_perftest::line(port), ucx_perftest::batch(runs, self.place));
                hosts.both_sides(&Sides { line: &line, before: &before, after: ucx_perftest::NO_BATCH, env, port })?
            }
            None => self.job(&Job { env, ..Job::new(ucx_perftest::command(runs, self.place, port)) })?,
        };
        let outcome = outcome.checked().context("ucx_perftest failed")?;
        self.found.measured.extend(ucx_perftest::parse(&outcome.stdout, runs)?);
        Ok(())
    }

    fn engine(&mut self, tests: &[&'static Test], sizes: &[u64], seconds_per_row: f64, expected: usize) -> Result<()> {
        let port = self.next_port();
        let line = engine::line(self.place, tests, sizes, seconds_per_row, port)?;
        let outcome = match self.place.hosts {
            Some(hosts) => hosts.both_sides(&Sides { line: &line, before: "", after: "", env: Vec::new(), port })?,
            None => self.job(&Job::new(engine::command(&line, self.place, port)))?,
        };
        let outcome = outcome.checked().context("the engine without MPI failed")?;
        self.found.measured.extend(engine::parse(&outcome.stdout, tests, expected)?);
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
        let outcome = self.job(&job)?.checked()?;
        let counted = instructions::read(&file, Counts::of_all(&outcome.stdout))?;
        // One that could not be read stays, for who looks why.
        fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
        Ok(counted)
    }

    fn next_port(&mut self) -> u16 {
        self.port = FIRST_PORT + (self.port - FIRST_PORT + 1) % PORTS;
        self.port
    }
}

/// A step's name for a reader.
fn named(step: &Step) -> String {
    match step {
        Step::Mpi { transport, tests, .. } => {
            let names: Vec<&str> = tests.iter().map(|test| test.name).collect();
            format!("MPI over {}: {}", transport.name(), names.join(", "))
        }
        Step::SmallBuffer => "events through a buffer that is too small".to_owned(),
        Step::Raw { program, bytes } => format!("{}, {}", program.name, size(*bytes)),
        Step::UcxPerftest { runs } => format!("ucx_perftest, {} runs", runs.len()),
        Step::Engine { tests, .. } => {
            let names: Vec<&str> = tests.iter().map(|test| test.name).collect();
            format!("the engine without MPI: {}", names.join(", "))
        }
        Step::Instructions(count) => {
            format!("{}, {}, of MPI over {}", count.test(), size(count.bytes), count.transport.name())
        }
        Step::HostMemory => "the emulated adapter beside the host's memory".to_owned(),
    }
}

/// The column and the tables of a step's values; none where it has no value, and all that it shows depends on it.
fn of_step(plan: &Plan, step: &Step) -> Option<(Transport, Vec<String>)> {
    let of = |tests: &[&'static Test]| tests.iter().map(|test| test.name.to_owned()).collect::<Vec<_>>();
    Some(match step {
        Step::Mpi { transport, tests, .. } => (*transport, of(tests)),
        Step::Raw { program, .. } => {
            let tests = plan.tests.iter().filter(|test| test.raw.contains(&program.name));
            (Transport::Raw, tests.map(|test| test.name.to_owned()).collect())
        }
        Step::UcxPerftest { runs } => {
            let mut names: Vec<String> = runs.iter().map(|(test, _)| test.name.to_owned()).collect();
            names.dedup();
            (Transport::UcxPerftest, names)
        }
        Step::Engine { tests, .. } => (Transport::Engine, of(tests)),
        Step::Instructions(count) => (count.transport, vec![count.test().to_owned()]),
        Step::HostMemory => {
            let tests = plan.tests.iter().filter(|test| test.by == By::HostMemory);
            (Transport::Raw, tests.map(|test| test.name.to_owned()).collect())
        }
        Step::SmallBuffer => return None,
    })
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
    use super::super::plan::Wanted;
    use super::*;

    /// Answers as programs would, where `fails` does not say otherwise of the command line.
    struct Made<F>(F);

    impl<F: Fn(&str) -> Option<Outcome>> Nodes for Made<F> {
        fn run(&self, job: &Job, line: &mut dyn FnMut(Stream, &str)) -> Result<Outcome> {
            let command = job.argv.join(" ");
            if command.contains("gone") {
                bail!("the machine is gone");
            }
            let outcome = (self.0)(&command).unwrap_or_else(|| {
                let stdout = if command.starts_with("mpirun") { MPI } else { SEND_LAT };
                Outcome { success: true, stdout: stdout.to_owned(), ..Outcome::default() }
            });
            outcome.stdout.lines().for_each(|text| line(Stream::Stdout, text));
            Ok(outcome)
        }
    }

    const MPI: &str = r#"{"test":"latency","bytes":8,"unit":"us","value":2.0,"spread":0.5}"#;
    const SEND_LAT: &str = include_str!("perftest-4.5/ib_send_lat.txt");

    fn plan(transports: &[Transport], sizes: &[u64]) -> Plan {
        let tests = vec!["latency".to_owned()];
        let (transports, sizes) = (transports.to_vec(), sizes.to_vec());
        Plan::chosen(Kind::Adapter, &Wanted { quick: true, tests, transports, sizes, ..Wanted::default() }).unwrap()
    }

    fn found(transports: &[Transport], fails: impl Fn(&str) -> Option<Outcome>) -> Found {
        run(&Made(fails), mpi::tests::place(), &plan(transports, &[8])).unwrap()
    }

    #[test]
    fn what_fails_is_written_down_with_its_reason_and_the_rest_is_measured() {
        let failed = |line: &str| {
            let shown = "`mpirun` exited with status 1: no route".to_owned();
            line.contains("self,tcp").then(|| Outcome { shown, ..Outcome::default() })
        };
        let found = found(&[Transport::Ibex, Transport::Tcp, Transport::Raw], failed);
        assert_eq!(found.measured.len(), 4, "two rounds of two transports: {found:?}");
        let [first, second] = &found.failures[..] else { panic!("{found:?}") };
        assert_eq!((first.round, second.round, first.transport.as_str()), (1, 2, "tcp"));
        assert!(first.reason.contains("no route") && !first.busy, "{first:?}");
        assert_eq!(first.values, [("latency".to_owned(), 8)]);
    }

    #[test]
    fn a_machine_on_which_perftest_finds_no_clock_loses_that_value_alone() {
        let busy = |line: &str| {
            let stderr = "Correlation coefficient r^2: 0.81 < 0.9\n".to_owned();
            line.contains("ib_send_lat").then(|| Outcome { success: true, stderr, ..Outcome::default() })
        };
        let found = found(&[Transport::Ibex, Transport::Raw], busy);
        assert_eq!((found.measured.len(), found.failures.len(), found.repeated), (2, 2, 2 * TRIES));
        let failure = &found.failures[0];
        assert!(failure.busy && failure.reason.contains("too busy") && failure.transport == "raw", "{failure:?}");
        assert_eq!((&failure.tests[..], &failure.values[0].0[..]), (&["latency".to_owned()][..], "ib_send_lat"));
    }

    #[test]
    fn a_program_that_measures_too_little_has_failed_and_keeps_what_it_measured() {
        let plan = plan(&[Transport::Ibex], &[8, 64]);
        let found = run(&Made(|_: &str| None), mpi::tests::place(), &plan).unwrap();
        assert_eq!(found.measured.len(), 2, "{found:?}");
        assert_eq!(found.failures[0].values, [("latency".to_owned(), 64)]);
    }

    #[test]
    fn where_nothing_can_be_run_any_more_the_bench_ends() {
        let place = Where { device: "gone", ..mpi::tests::place() };
        let error = run(&Made(|_: &str| None), place, &plan(&[Transport::Ibex], &[8])).unwrap_err();
        assert!(format!("{error:#}").contains("the machine is gone"), "{error:#}");
    }

    #[test]
    fn small_messages_are_counted_and_large_ones_are_measured_by_their_bytes() {
        assert_eq!(iterations(Reads::TypicalLatency, 8, Kind::SoftRoce), 1000);
        assert_eq!(iterations(Reads::Bandwidth, 1 << 20, Kind::SoftRoce), 40);
        assert_eq!(iterations(Reads::Bandwidth, 4 << 20, Kind::SoftRoce), 20);
        assert!(iterations(Reads::MessageRate, 8, Kind::Adapter) > iterations(Reads::MessageRate, 8, Kind::SoftRoce));
    }
}
