// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask simulate`: runs the programs of many seeds. Prints the rate, and for a failure the seed, the shrunk
//! program as a test, the last steps, and the folder of its trace. Or writes the trace of one seed's program, or runs
//! many processes once (`scale`). Grade: test. Threads: one program per thread. Tests: those of the crate.

#![forbid(unsafe_code)]

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ibex_simulation::shrink::{Shrinks, shrink};
use ibex_simulation::{Failure, Program, Report, libfabric, record, run, scale, silence_panics};

/// What the caller asks for.
struct Arguments {
    /// Number of seeds.
    seeds: u64,
    /// The first seed.
    from: u64,
    /// Number of processes of each program; `None`: the seed says it.
    processes: Option<u32>,
    /// Whether processes outlive others.
    outlives: bool,
    /// Whether the programs are libfabric's.
    is_of_libfabric: bool,
}

/// Programs of seeds, of MPI or of libfabric.
trait Programs: Shrinks + Display {
    /// The file for a test of a shrunk program.
    const TESTS: &str;

    fn of(arguments: &Arguments, seed: u64) -> Self;

    fn run(&self) -> Result<Report, Failure>;

    /// Writes the trace of a failing program.
    fn record(&self, _folder: &Path) {}
}

impl Programs for Program {
    const TESTS: &str = "simulation/src/tests/mod.rs";

    fn of(Arguments { processes, outlives, .. }: &Arguments, seed: u64) -> Self {
        (if *outlives { Program::with_lost_peers } else { Program::of_seed })(seed, *processes)
    }

    fn run(&self) -> Result<Report, Failure> {
        run(self)
    }

    fn record(&self, folder: &Path) {
        print_recorded(self, folder);
    }
}

impl Programs for libfabric::Program {
    const TESTS: &str = "simulation/src/tests/libfabric.rs";

    fn of(Arguments { processes, outlives, .. }: &Arguments, seed: u64) -> Self {
        use libfabric::Program;
        (if *outlives { Program::with_lost_peers } else { Program::of_seed })(seed, *processes)
    }

    fn run(&self) -> Result<Report, Failure> {
        libfabric::run(self)
    }
}

impl Arguments {
    /// Reads three numbers: the seeds, the first of them, and the processes, 0 if the seed says it; after a word that
    /// says of which programs: `lost`, whose processes outlive others, `libfabric`, or `libfabric-lost`.
    fn read(words: &[String]) -> Option<Self> {
        let kind = words.first().map_or("", |word| word);
        let is_of_libfabric = ["libfabric", "libfabric-lost"].contains(&kind);
        let outlives = ["lost", "libfabric-lost"].contains(&kind);
        let words = &words[usize::from(is_of_libfabric || outlives)..];
        let numbers: Vec<u64> = words.iter().map_while(|word| word.parse().ok()).collect();
        let [seeds, from, processes] = numbers[..] else { return None };
        Some(Arguments {
            seeds,
            from,
            processes: (processes > 0).then_some(processes as u32),
            outlives,
            is_of_libfabric,
        })
    }
}

/// Number of threads.
const THREADS: usize = 2;

/// What all threads did.
#[derive(Default)]
struct Done {
    programs: u64,
    steps: u64,
    /// Wrapping sum of the hashes of all histories.
    histories: u64,
    /// The lowest seed that failed.
    failed: Option<u64>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [word, count] = &words[..]
        && let ("scale", Ok(count)) = (&**word, count.parse())
    {
        return print_scale(count);
    }
    silence_panics();
    if let Some((folder, numbers)) = words.split_last()
        && let Some(arguments) =
            Arguments::read(numbers).filter(|arguments| arguments.seeds == 1 && !arguments.is_of_libfabric)
    {
        let is_right = print_recorded(&Program::of(&arguments, arguments.from), Path::new(folder));
        return if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let Some(arguments) = Arguments::read(&words) else {
        eprintln!(
            "usage: ibex-simulate [lost | libfabric | libfabric-lost] SEEDS FIRST PROCESSES | \
             ibex-simulate [lost] 1 SEED PROCESSES FOLDER | ibex-simulate scale PROCESSES"
        );
        return ExitCode::FAILURE;
    };
    if arguments.is_of_libfabric { simulate::<libfabric::Program>(&arguments) } else { simulate::<Program>(&arguments) }
}

/// Runs the programs of seeds.
fn simulate<P: Programs>(arguments: &Arguments) -> ExitCode {
    let begun = Instant::now();
    let (next, done) = (AtomicU64::new(0), Mutex::new(Done::default()));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| run_some::<P>(arguments, &next, &done));
        }
    });
    let done = done.into_inner().expect("no thread ends with the lock");
    print_rate(&done, begun.elapsed());
    let Some(seed) = done.failed else { return ExitCode::SUCCESS };
    print_failure(seed, &P::of(arguments, seed));
    ExitCode::FAILURE
}

fn print_scale(count: u32) -> ExitCode {
    let [neighbours, one] = scale::run(count);
    println!("{count} processes, each to {} neighbours: {neighbours}", scale::NEIGHBOURS);
    println!("then all to one: {one}");
    ExitCode::SUCCESS
}

/// Runs seeds until all are done, or one has failed.
fn run_some<P: Programs>(arguments: &Arguments, next: &AtomicU64, done: &Mutex<Done>) {
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= arguments.seeds {
            return;
        }
        let seed = arguments.from + seed;
        let outcome = P::of(arguments, seed).run();
        let mut done = done.lock().expect("no thread ends with the lock");
        let Ok(report) = outcome else {
            done.failed = Some(done.failed.map_or(seed, |known| known.min(seed)));
            // No thread takes another one.
            return next.store(arguments.seeds, Ordering::Relaxed);
        };
        done.programs += 1;
        done.steps += report.steps;
        done.histories = done.histories.wrapping_add(report.history);
    }
}

fn print_rate(Done { programs, steps, histories, .. }: &Done, took: Duration) {
    let per_hour = *programs as f64 / took.as_secs_f64() * 3600.0;
    println!("{programs} programs in {:.1} s: {per_hour:.0} per hour", took.as_secs_f64());
    println!("{steps} steps; histories {histories:016x}");
}

fn print_failure<P: Programs>(seed: u64, program: &P) {
    println!("\nSeed {seed} fails:");
    let failure = program.run().expect_err("it has failed before");
    println!("{failure}");
    // The check that failed, without its values.
    let place = |failure: &Failure| failure.what.split(": ").next().map(str::to_owned);
    let small = shrink(program, |program| program.run().is_err_and(|other| place(&other) == place(&failure)));
    println!("Shrunk, as a test for {}:\n", P::TESTS);
    println!("#[test]\nfn seed_{seed}() {{\n{small}\n}}\n");
    let name = format!("ibex-simulate-{seed}-{}", std::process::id());
    small.record(&std::env::temp_dir().join(name));
}

/// Runs a program, writes its trace to a folder, and prints the failure and how to open the trace. Returns whether the
/// program ran without a failure and the trace was written.
fn print_recorded(program: &Program, folder: &Path) -> bool {
    let (outcome, written) = record(program, folder);
    match &outcome {
        Ok(report) => println!("{} steps; history {:016x}", report.steps, report.history),
        Err(failure) => println!("It fails:\n{failure}"),
    }
    match &written {
        Ok(()) => println!("Its trace is in {0}: ibex view {0}", folder.display()),
        Err(error) => println!("There is no trace: {error}"),
    }
    outcome.is_ok() && written.is_ok()
}
