// SPDX-License-Identifier: MIT OR Apache-2.0
//! Carries out a plan, round by round. A failure is noted, and the rest goes on: the other values of a long bench are
//! still valid. A program that failed after a long time is not started again in later rounds. Values whose rounds lie
//! far apart are measured again. `mpi` and `without_mpi` do one step, by a `runner`; [`found`] has the results. Called
//! by the bench. Grade: setup. Single-threaded, but for the progress bar's own clock. Tests: below.

pub(crate) mod found;
mod mpi;
mod runner;
mod without_mpi;

use crate::catalogue::Transport;
use crate::nodes::{Nodes, Where};
use crate::plan::Plan;
use crate::plan::round::{Start, Step};
use crate::spread;
use anyhow::Result;
use found::{Failure, Found};
use runner::{NodesGone, Progress, Runner};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use without_mpi::Busy;

/// Runs the plan and returns all values; an error is that no program can be run any more.
pub(crate) fn run(nodes: &dyn Nodes, place: Where, plan: &Plan) -> Result<Found> {
    let runner = Runner::new(nodes, place, Progress::new(plan.values(), plan.rounds));
    let mut bench = Bench { plan, runner, given_up: BTreeSet::new(), found: Found::default() };
    let started = Instant::now();
    while plan.has_another_round(bench.found.effort.rounds, started.elapsed()) {
        let round = bench.found.effort.rounds + 1;
        for step in plan.round(round) {
            bench.step(round, &step)?;
        }
        bench.found.effort.rounds = round;
    }
    bench.again(started)?;
    bench.runner.progress.end();
    Ok(bench.found)
}

/// A step that fails after this time is not started again: it would hang in each round.
const LONG: Duration = Duration::from_mins(1);

struct Bench<'a> {
    plan: &'a Plan,
    runner: Runner<'a>,
    /// Names of steps that are not worth another try.
    given_up: BTreeSet<String>,
    found: Found,
}

impl Bench<'_> {
    /// Measures unsteady values again, as often as before, while there is time: each value once more in turn.
    fn again(&mut self, started: Instant) -> Result<()> {
        let cells = spread::cells(&self.found.measured);
        let unsteady: BTreeSet<(String, Transport, u64)> = cells
            .into_iter()
            .filter(|(_, rounds)| rounds.is_unsteady())
            .map(|((test, transport, bytes), _)| (test.to_owned(), transport, bytes))
            .collect();
        let steps = self.plan.again(|test, transport, bytes| unsteady.contains(&(test.to_owned(), transport, bytes)));
        if steps.is_empty() || !self.plan.has_time_again(started.elapsed()) {
            return Ok(());
        }
        let (rounds, values) = (self.found.effort.rounds, steps.iter().map(|step| step.values.len()).sum::<usize>());
        self.runner.progress.remarks(&format!("Measuring again, as their rounds lie far apart: {values} values"));
        self.runner.progress.expect(rounds * values);
        for round in 1..=rounds {
            for step in &steps {
                if !self.plan.has_time_again(started.elapsed()) {
                    return Ok(());
                }
                self.step(rounds, step)?;
                self.found.effort.again += if round == 1 { step.values.len() } else { 0 };
            }
        }
        Ok(())
    }

    fn step(&mut self, round: usize, step: &Step) -> Result<()> {
        let name = step.title();
        if self.given_up.contains(&name) {
            self.runner.progress.advance(step.values.len());
            return Ok(());
        }
        self.runner.progress.says(round, &name);
        let (before, started) = (self.found.measured.len(), Instant::now());
        let Err(error) = self.done(step) else { return Ok(()) };
        if error.is::<NodesGone>() {
            return Err(error);
        }
        self.runner.progress.remarks(&format!("{name}: {error:#}"));
        if step.tests.is_empty() {
            return Err(error);
        }
        let mut values: Vec<_> = step.values.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect();
        let found = &self.found.measured[before..];
        self.runner.progress.advance(values.len().saturating_sub(found.len()));
        values.retain(|(name, bytes)| !found.iter().any(|one| one.test == *name && one.bytes == *bytes));
        if started.elapsed() > LONG {
            self.given_up.insert(name);
        }
        let tests = step.tests.iter().map(|test| (*test).to_owned()).collect();
        let (busy, reason) = (error.is::<Busy>(), format!("{error:#}"));
        let transport = step.transport.name().to_owned();
        self.found.failures.push(Failure { transport, tests, values, round, reason, busy, missing: true });
        Ok(())
    }

    fn done(&mut self, step: &Step) -> Result<()> {
        let Self { plan, runner, found, .. } = self;
        match &step.start {
            Start::Mpi { tests, bytes } => {
                // It reports its progress itself.
                return mpi::mpi(runner, step.transport, tests, *bytes, found);
            }
            Start::SmallBuffer => mpi::small_buffer(runner, found)?,
            Start::Raw { program, bytes } => without_mpi::raw(runner, program, *bytes, found)?,
            Start::Instructions(count) => mpi::instructions(runner, *count, plan.is_of_events(), found)?,
            Start::Libfabric { bytes } => without_mpi::libfabric(runner, *bytes, found)?,
            Start::HostMemory => without_mpi::host_memory(runner, found)?,
        }
        runner.progress.advance(step.values.len());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{Kind, Mpi};
    use crate::nodes::job::ended;
    use crate::nodes::place::tests::place;
    use crate::nodes::{Job, Outcome, Stream};
    use crate::plan::wanted::Wanted;
    use anyhow::bail;
    use std::cell::{Cell, RefCell};
    use without_mpi::TRIES;

    /// Answers as the programs would, unless `fails` gives another answer for the command line.
    struct Made<F>(F);

    impl<F: Fn(&str) -> Option<Outcome>> Nodes for Made<F> {
        fn run(&self, job: &Job, line: &mut dyn FnMut(Stream, &str)) -> Result<Outcome> {
            let command = job.argv.join(" ");
            if command.contains("gone") {
                bail!("the machine is gone");
            }
            let outcome = (self.0)(&command).unwrap_or_else(|| {
                let stdout = if command.starts_with("mpirun") { MPI } else { SEND_LAT };
                ended(0, stdout, "")
            });
            outcome.stdout.lines().for_each(|text| line(Stream::Stdout, text));
            Ok(outcome)
        }
    }

    const MPI: &str = r#"{"test":"latency","bytes":8,"unit":"us","value":2.0,"spread":0.5}"#;
    const SEND_LAT: &str = include_str!("../programs/perftest-4.5/ib_send_lat.txt");

    fn plan(transports: &[Transport], sizes: &[u64]) -> Plan {
        let tests = vec!["latency".to_owned()];
        let (transports, sizes) = (transports.to_vec(), sizes.to_vec());
        Plan::chosen(
            Kind::Adapter,
            Mpi::OpenMpi,
            &Wanted { tests, transports, sizes, rounds: Some(2), ..Wanted::default() },
        )
        .unwrap()
    }

    fn found(transports: &[Transport], fails: impl Fn(&str) -> Option<Outcome>) -> Found {
        run(&Made(fails), place(), &plan(transports, &[8])).unwrap()
    }

    #[test]
    fn a_failure_is_noted_with_its_reason_and_the_rest_is_measured() {
        let failed = |line: &str| line.contains("self,tcp").then(|| ended(1, "", "no route"));
        let found = found(&[Transport::Ibex, Transport::Tcp, Transport::Raw], failed);
        assert_eq!((found.measured.len(), found.effort.rounds), (4, 2), "two rounds of two transports: {found:?}");
        let [first, second] = &found.failures[..] else { panic!("{found:?}") };
        assert_eq!((first.round, second.round, first.transport.as_str()), (1, 2, "tcp"));
        assert!(first.reason.contains("no route") && !first.busy, "{first:?}");
        assert_eq!(first.values, [("latency".to_owned(), 8)]);
    }

    #[test]
    fn a_machine_on_which_perftest_finds_no_clock_loses_that_value_alone() {
        let runs = Cell::new(0);
        let busy = |line: &str| {
            runs.set(runs.get() + usize::from(line.contains("ib_send_lat")));
            line.contains("ib_send_lat").then(|| ended(0, "", "Correlation coefficient r^2: 0.81 < 0.9\n"))
        };
        let found = found(&[Transport::Ibex, Transport::Raw], busy);
        assert_eq!((found.measured.len(), found.failures.len(), runs.get()), (2, 2, 2 * TRIES));
        let failure = &found.failures[0];
        assert!(failure.busy && failure.reason.contains("too busy") && failure.transport == "raw", "{failure:?}");
        assert_eq!((&failure.tests[..], &failure.values[0].0[..]), (&["latency".to_owned()][..], "ib_send_lat"));
    }

    #[test]
    fn a_program_that_measures_too_little_has_failed_and_keeps_what_it_measured() {
        let tests = ["put_latency", "get_latency"].map(str::to_owned).to_vec();
        let (transports, sizes) = (vec![Transport::Ibex], vec![8]);
        let wanted = Wanted { tests, transports, sizes, rounds: Some(1), ..Wanted::default() };
        let half = |_: &str| Some(ended(0, &MPI.replace("latency", "put_latency"), ""));
        let found = run(&Made(half), place(), &Plan::chosen(Kind::Adapter, Mpi::OpenMpi, &wanted).unwrap()).unwrap();
        assert_eq!(found.measured.len(), 1, "{found:?}");
        assert_eq!(found.failures[0].values, [("get_latency".to_owned(), 8)]);
    }

    #[test]
    fn unsteady_values_are_measured_again_as_often_as_before_and_others_are_not() {
        let runs = Cell::new(0.0);
        let unsteady = |line: &str| {
            line.contains("self,tcp").then(|| {
                runs.set(runs.get() + 1.0);
                ended(0, &MPI.replace("2.0", &format!("{}.0", runs.get())), "")
            })
        };
        let found = found(&[Transport::Ibex, Transport::Tcp], unsteady);
        let values = |transport| found.measured.iter().filter(|one| one.transport == transport).count();
        assert_eq!((values(Transport::Ibex), values(Transport::Tcp), found.effort.again), (2, 4, 1));
    }

    #[test]
    fn a_program_of_perftest_is_run_longer_until_it_is_settled_and_that_long_from_then_on() {
        let lengths = RefCell::new(Vec::new());
        let settles = |line: &str| {
            let count = line.split(" -n ").nth(1)?.split(' ').next()?.parse::<u32>().ok()?;
            lengths.borrow_mut().push(count);
            let value = if count < 20_000 { "99.99" } else { "76.31" };
            Some(ended(0, &SEND_LAT.replace("76.31", value), ""))
        };
        let found = found(&[Transport::Raw], settles);
        assert_eq!(*lengths.borrow(), [10_000, 20_000, 40_000, 40_000]);
        assert!(found.measured.iter().all(|one| one.value < 77.0));
    }

    #[test]
    fn the_bench_ends_when_nothing_can_be_run_any_more() {
        let gone = Where { device: "gone", ..place() };
        let error = run(&Made(|_: &str| None), gone, &plan(&[Transport::Ibex], &[8])).unwrap_err();
        assert!(format!("{error:#}").contains("the machine is gone"), "{error:#}");
    }
}
