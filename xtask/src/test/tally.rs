// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results of `cargo xtask test`: runs the commands of the parts, and counts tests that passed, failed, were
//! skipped or repeated, and the time of each part. Called by [`super`]. Grade: setup; test programs run side by side on
//! as many threads as there are processors, and so may lanes of several parts. Tests: below.

use crate::command::{shown, step};
use anyhow::{Context, Result};
use std::fmt;
use std::io::{BufRead, BufReader};
use std::panic::resume_unwind;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Largest number of repeated tests; more mean that the machine or the tested code is unreliable.
const MOST_FLAKY: usize = 3;

/// Beginning of a line that reports a repeated test.
const FLAKY: &str = "flaky ";

#[derive(Debug, Default, PartialEq)]
pub(super) struct Tally {
    passed: u64,
    failed: u64,
    skipped: u64,
    pub(super) failures: Vec<String>,
    /// Repeated tests, each with the reason.
    flaky: Vec<String>,
    /// Name and duration of each part that runs a command.
    pub(super) took: Vec<(String, Duration)>,
    has_neighbours: bool,
    /// Prefix of each line that is shown.
    before: String,
}

/// Parts that run one after the other, beside other lanes.
pub(super) type Lane<'a> = Box<dyn FnOnce(&mut Tally) + Send + 'a>;

impl Tally {
    /// Whether something ran, nothing failed, and few tests were repeated.
    pub(super) fn good(&self) -> bool {
        self.failed == 0 && self.passed > 0 && self.flaky.len() <= MOST_FLAKY
    }

    /// Runs a command as a part that either succeeds or not.
    pub(super) fn part(&mut self, name: &str, command: &mut Command) {
        step(&format!("{name}: {}", shown(command)));
        self.timed(name, || crate::command::run(command));
    }

    /// Runs, times and counts a part, and returns its result.
    pub(super) fn timed<T>(&mut self, name: &str, part: impl FnOnce() -> Result<T>) -> Option<T> {
        let started = Instant::now();
        let done = part();
        self.took.push((name.to_owned(), started.elapsed()));
        self.done(name, done)
    }

    pub(super) fn done<T>(&mut self, name: &str, done: Result<T>) -> Option<T> {
        match done {
            Ok(made) => {
                self.passed += 1;
                Some(made)
            }
            Err(error) => {
                println!("{name}: {error:#}");
                self.fail(name.to_owned());
                None
            }
        }
    }

    /// Reports and counts a part that cannot run here.
    pub(super) fn skip(&mut self, what: &str) {
        println!("skip {what}");
        self.skipped += 1;
    }

    fn fail(&mut self, name: String) {
        self.failed += 1;
        self.failures.push(name);
    }

    /// Runs a Rust test program, or a command that runs several, shows its output, and counts its results.
    pub(super) fn tests(&mut self, name: &str, command: &mut Command) {
        step(&format!("{name}: {}", shown(command)));
        let before = (self.passed, self.failed, self.failures.len());
        let started = Instant::now();
        let ended = self.count_lines_of(command);
        self.took.push((name.to_owned(), started.elapsed()));
        let said_failed = self.failed > before.1;
        for failure in &mut self.failures[before.2..] {
            *failure = format!("{name}: {failure}");
        }
        match ended {
            Ok(true) if self.passed > before.0 => {}
            Ok(true) => self.fail(format!("{name}: not one test ran")),
            // The output has reported failed tests already; a crash or a failed build reports nothing.
            Ok(false) if said_failed => {}
            Ok(false) => self.fail(name.to_owned()),
            Err(error) => self.fail(format!("{name}: {error:#}")),
        }
    }

    /// Runs Rust test programs side by side, shows the output of each when it has ended, and counts their results.
    pub(super) fn programs(&mut self, name: &str, programs: Vec<(String, Command)>) {
        step(&format!("{name}: {} test programs", programs.len()));
        let before = (self.passed, self.failed);
        let started = Instant::now();
        let side_by_side = thread::available_parallelism().map_or(1, usize::from);
        let waiting = Mutex::new(programs.into_iter());
        let (sender, ended) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..side_by_side {
                let (sender, waiting) = (sender.clone(), &waiting);
                scope.spawn(move || {
                    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
                    while let Some((program, mut command)) = next() {
                        let output = command.stdin(Stdio::null()).output();
                        // Fails if the receiver has stopped counting.
                        let _ = sender.send((program, shown(&command), output));
                    }
                });
            }
            drop(sender);
            for (program, line, output) in ended {
                println!("==> {program}");
                match output {
                    Ok(output) => self.count_ended(&program, &output),
                    Err(error) => self.fail(format!("{program}: cannot start `{line}`: {error}")),
                }
            }
        });
        self.took.push((name.to_owned(), started.elapsed()));
        if (self.passed, self.failed) == before {
            self.fail(format!("{name}: not one test ran"));
        }
    }

    pub(super) fn side_by_side(&mut self, lanes: Vec<Lane<'_>>) {
        let has_neighbours = lanes.len() > 1;
        let counted: Vec<Self> = thread::scope(|scope| {
            let run = |parts: Lane<'_>| {
                let mut tally = Self { has_neighbours, ..Self::default() };
                parts(&mut tally);
                tally
            };
            let running: Vec<_> = lanes.into_iter().map(|lane| scope.spawn(move || run(lane))).collect();
            running.into_iter().map(|lane| lane.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
        });
        for lane in counted {
            self.add(lane);
        }
    }

    /// Prefixes the next lines with the name of the part if other lanes print between them.
    pub(super) fn name_lines(&mut self, name: &str) {
        if self.has_neighbours {
            self.before = format!("{name}: ");
        }
    }

    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.failures.extend(other.failures);
        self.flaky.extend(other.flaky);
        self.took.extend(other.took);
    }

    fn count_ended(&mut self, program: &str, output: &Output) {
        let failed_before = self.failed;
        // Tests write some lines past the capture, to the other stream.
        for stream in [&output.stdout, &output.stderr] {
            let text = String::from_utf8_lossy(stream);
            print!("{text}");
            text.lines().for_each(|line| self.count(line));
        }
        if !output.status.success() && self.failed == failed_before {
            self.fail(format!("{program}: {}", output.status));
        }
    }

    /// Runs a command, and shows and counts each line of its standard output. Returns whether it succeeded.
    fn count_lines_of(&mut self, command: &mut Command) -> Result<bool> {
        let line = shown(command);
        let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start `{line}`"))?;
        let stdout = child.stdout.take().context("standard output is a pipe")?;
        for text in BufReader::new(stdout).split(b'\n') {
            let text = String::from_utf8_lossy(&text?).into_owned();
            println!("{}{text}", self.before);
            self.count(&text);
        }
        Ok(child.wait()?.success())
    }

    fn count(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... FAILED")) {
            self.failures.push(name.trim_end().to_owned());
        }
        if line.starts_with("skip ") {
            self.skipped += 1;
        }
        if let Some(what) = line.strip_prefix(FLAKY) {
            self.flaky.push(what.to_owned());
        }
        if let Some(results) = line.strip_prefix("test result: ") {
            self.passed += number_before(results, " passed");
            self.failed += number_before(results, " failed");
            self.skipped += number_before(results, " ignored");
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)?;
        let flaky = self.flaky.len();
        if flaky == 0 {
            return Ok(());
        }
        let judged = if flaky > MOST_FLAKY { "; more than three fail a run" } else { "" };
        write!(out, ", {flaky} flaky (done once more: {}{judged})", self.flaky.join("; "))
    }
}

/// Returns the number before a word: 12 before ` passed` in `ok. 12 passed; 0 failed`.
fn number_before(text: &str, word: &str) -> u64 {
    let before = text.split(word).next().unwrap_or("");
    before.rsplit(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_results_of_test_programs_are_added_up() {
        let mut tally = Tally::default();
        tally.count("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s");
        tally.count("test a::b       ... FAILED");
        tally
            .count("test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s");
        tally.count("skip pt2pt: the device has no timestamps");
        assert_eq!(tally.to_string(), "15 passed, 1 failed, 2 skipped");
        assert_eq!(tally.failures, ["a::b"]);
        assert!(!tally.good());
    }

    #[test]
    fn repeated_jobs_are_listed_with_their_reason_and_too_many_are_a_failure() {
        let mut tally = Tally::default();
        tally.count("test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s");
        for _ in 0..MOST_FLAKY {
            tally.count("flaky a: the guest's kernel crashed");
        }
        assert!(tally.good() && tally.to_string().contains("3 flaky (done once more: a: the guest's kernel crashed;"));
        tally.count("flaky b: the guest's kernel crashed");
        assert!(!tally.good() && tally.to_string().contains("b: the guest's kernel crashed; more than"), "{tally}");
    }

    #[test]
    fn programs_that_run_side_by_side_are_counted_each() {
        let program = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            (script.to_owned(), command)
        };
        let passes = "echo 'test result: ok. 2 passed; 0 failed; 0 ignored'; echo 'skip x: no reader' >&2";
        let mut tally = Tally::default();
        tally.programs("good", vec![program(passes), program(passes)]);
        assert_eq!((tally.passed, tally.skipped, tally.good()), (4, 2, true));
        tally.programs("bad", vec![program("exit 3"), program(passes)]);
        tally.programs("none", vec![program("true")]);
        assert_eq!(tally.failures, ["exit 3: exit status: 3", "none: not one test ran"]);
    }

    #[test]
    fn lanes_that_run_side_by_side_are_counted_each() {
        fn lane() -> Lane<'static> {
            let script = "echo 'test a ... FAILED'; echo 'test result: 2 passed; 1 failed; 3 ignored'";
            Box::new(move |tally| {
                tally.name_lines("lane");
                tally.tests("one", Command::new("sh").args(["-c", script]));
                tally.skip("two");
            })
        }
        let mut tally = Tally::default();
        tally.side_by_side(vec![lane(), lane()]);
        assert_eq!(tally.to_string(), "4 passed, 2 failed, 8 skipped");
        assert_eq!((tally.failures, tally.took.len()), (vec!["one: a".to_owned(), "one: a".to_owned()], 2));
    }

    #[test]
    fn a_part_that_cannot_run_runs_no_test_or_crashes_is_no_success() {
        let mut tally = Tally::default();
        tally.skip("the tests under Miri: there is no rustup");
        assert_eq!((tally.to_string().as_str(), tally.good()), ("0 passed, 0 failed, 1 skipped", false));
        tally.tests("nothing", &mut Command::new("true"));
        assert_eq!(tally.failures, ["nothing: not one test ran"]);
        let crash = "echo 'test result: ok. 2 passed; 0 failed; 0 ignored'; exit 101";
        tally.tests("crash", Command::new("sh").args(["-c", crash]));
        assert_eq!((tally.passed, tally.failures.last().map(String::as_str)), (2, Some("crash")));
    }
}
