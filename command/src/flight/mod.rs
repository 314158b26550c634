// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibex flight FILE...`: prints the last entries of processes' flight recorders, ordered by the time of day; for
//! several jobs in a folder, a summary of each (`jobs`). The engine's `flight` reads the files. Grade: setup. Tests:
//! below; with a device, `hw-tests/tests/device/flight.rs`.

use crate::answer::{self, Form};
use anyhow::{Result, bail};
use ibex::flight::leftovers::{self, FOLDER};
use ibex::flight::{Entry, Flight, NO_PORT, NOBODY};
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod jobs;

use jobs::{Job, age, date, last};

#[derive(clap::Args)]
#[command(after_help = "Example: list the jobs that failed on this host, and show the last entries of one\n  \
                        ibex flight\n  ibex flight --job 2059534337\n\n\
                        Times are seconds before the last entry shown. Where a job failed, ibex prints where the file is.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    form: Form,
    /// Files of the flight recorder, or folders of them [default: /dev/shm]
    files: Vec<PathBuf>,
    /// Only processes of this Open MPI job
    #[arg(long)]
    job: Option<u32>,
    /// Show only this many last entries; 0: all
    #[arg(long, short = 'n', default_value_t = 50)]
    last: usize,
}

const MOST_JOBS: usize = 20;

#[derive(Serialize)]
struct Shown {
    /// The jobs, the last failure first.
    jobs: Vec<Job>,
    /// Whether the text lists only the jobs, because there are several and the user named none.
    #[serde(skip)]
    is_summary: bool,
    processes: Vec<Process>,
    omitted: usize,
    entries: Vec<Line>,
    unreadable: Vec<String>,
}

#[derive(Serialize)]
struct Process {
    file: PathBuf,
    job: u32,
    rank: u32,
    host: String,
    pid: u32,
    program: String,
    alive: bool,
    reason: String,
    /// Time of its last write, nanoseconds since 1970.
    last_ns: u64,
    entries: u64,
    torn: u64,
}

#[derive(Serialize)]
struct Line {
    time_ns: u64,
    /// Seconds relative to the last entry, so negative.
    seconds: f64,
    job: u32,
    rank: u32,
    host: String,
    kind: &'static str,
    port: Option<String>,
    peer: Option<u32>,
    detail: u8,
    numbers: [u64; 4],
    #[serde(skip)]
    who: String,
    text: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let folder = [PathBuf::from(FOLDER)];
    let named = if arguments.files.is_empty() { &folder[..] } else { &arguments.files };
    let (mut flights, mut unreadable) = (Vec::new(), Vec::new());
    for path in named {
        if !path.is_dir() {
            flights.push((path.clone(), Flight::read(path)?));
            continue;
        }
        for found in leftovers::find(path) {
            match Flight::read(&found.path) {
                Ok(flight) => flights.push((found.path, flight)),
                Err(error) => unreadable.push(error.to_string()),
            }
        }
    }
    flights.retain(|(_, flight)| arguments.job.is_none_or(|job| job == flight.job));
    if flights.is_empty() {
        let places: Vec<_> = named.iter().map(|path| path.display().to_string()).collect();
        for why in &unreadable {
            eprintln!("ibex: {why}");
        }
        bail!(
            "there is no flight recorder's file in {}. A process removes its file in MPI_Finalize; \
             btl_ibex_flight_recorder says in which folder they are",
            places.join(" and ")
        );
    }
    let mut shown = shown(&flights, unreadable, arguments.last);
    shown.is_summary = shown.jobs.len() > 1 && named.iter().any(|path| path.is_dir());
    answer::print(&arguments.form, &shown)?;
    Ok(ExitCode::SUCCESS)
}

fn shown(flights: &[(PathBuf, Flight)], unreadable: Vec<String>, last: usize) -> Shown {
    let mut entries: Vec<(u64, &Flight, &Entry)> = Vec::new();
    for (_, flight) in flights {
        entries.extend(flight.entries.iter().map(|entry| (entry.time.wrapping_add(flight.to_unix), flight, entry)));
    }
    entries.sort_by_key(|(time, ..)| *time);
    let omitted = if last == 0 { 0 } else { entries.len().saturating_sub(last) };
    let end = entries.last().map_or(0, |(time, ..)| *time);
    let jobs = Job::of(flights.iter().map(|(_, flight)| flight));
    let place = |of: &Flight| jobs.iter().position(|job| job.number == of.job);
    let mut flights: Vec<_> = flights.iter().collect();
    flights.sort_by_key(|(_, flight)| (place(flight), flight.rank, flight.pid));
    Shown {
        is_summary: false,
        processes: flights.iter().map(|(path, flight)| process(path, flight)).collect(),
        omitted,
        entries: entries[omitted..].iter().map(|(time, flight, entry)| line(*time, end, flight, entry)).collect(),
        unreadable,
        jobs,
    }
}

fn process(path: &Path, flight: &Flight) -> Process {
    Process {
        file: path.into(),
        job: flight.job,
        rank: flight.rank,
        host: flight.host.clone(),
        pid: flight.pid,
        program: flight.program.clone(),
        alive: flight.is_alive,
        reason: flight.reason.clone(),
        last_ns: last(flight),
        entries: flight.made,
        torn: flight.torn,
    }
}

fn line(time: u64, end: u64, flight: &Flight, entry: &Entry) -> Line {
    let name = flight.port_name(entry.port);
    let named = if name.is_empty() { format!("port {}", entry.port) } else { name.to_owned() };
    Line {
        time_ns: time,
        seconds: 0.0 - end.saturating_sub(time) as f64 / 1e9,
        job: flight.job,
        rank: flight.rank,
        host: flight.host.clone(),
        kind: entry.known().map_or("unknown", |kind| kind.name()),
        port: (entry.port != NO_PORT).then_some(named),
        peer: (entry.peer != NOBODY).then_some(entry.peer),
        detail: entry.detail,
        numbers: entry.numbers,
        who: entry.who(),
        text: entry.to_string(),
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_summary {
            self.jobs.iter().take(MOST_JOBS).try_for_each(|job| write!(f, "{job}"))?;
            let more = self.jobs.len().saturating_sub(MOST_JOBS);
            if more > 0 {
                writeln!(f, "Older ones: {more} (--json has all)")?;
            }
            self.unreadable.iter().try_for_each(|why| writeln!(f, "Left out: {why}."))?;
            let first = self.jobs.first().map_or(0, |job| job.number);
            return writeln!(f, "\nTo see the last entries of a job: ibex flight --job {first}");
        }
        if let Some(job) = self.jobs.first() {
            writeln!(f, "The last entry was made at {}, {}.", date(job.last_ns), age(job.last_ns))?;
        }
        for process in &self.processes {
            let Process { job, rank, host, pid, program, .. } = process;
            let state = if process.alive { "running" } else { "no longer running on this host" };
            writeln!(f, "Rank {rank} of job {job} on host {host}, process {pid}, {program}: {state}.")?;
            writeln!(f, "  {}", process.file.display())?;
            process.reason.lines().try_for_each(|line| writeln!(f, "  {line}"))?;
            if process.torn > 0 {
                writeln!(f, "  Incomplete entries, left out: {}.", process.torn)?;
            }
        }
        self.unreadable.iter().try_for_each(|why| writeln!(f, "Left out: {why}."))?;
        match self.omitted {
            0 => writeln!(f, "\nAll entries:")?,
            omitted => writeln!(f, "\nThe last {} entries; --last 0 shows {omitted} more:", self.entries.len())?,
        }
        for line in &self.entries {
            write!(f, "{:>13.6} s  rank {:<4}", line.seconds, line.rank)?;
            if let Some(port) = &line.port {
                write!(f, "  {port}")?;
            }
            let who = if line.who.is_empty() { String::new() } else { format!("{}: ", line.who) };
            writeln!(f, "  {who}{}", line.text)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibex::flight::Kind;

    pub(super) fn flight(rank: u32, to_unix: u64, times: &[u64]) -> (PathBuf, Flight) {
        let entry = |time: &u64| Entry {
            number: 0,
            time: *time,
            kind: Kind::ConnectionFailed as u16,
            port: 0,
            detail: 0,
            peer: rank ^ 1,
            numbers: [0x11, 12, 0, 0],
        };
        let flight = Flight {
            pid: 100 + rank,
            rank,
            host: format!("n{rank}"),
            is_alive: rank == 0,
            to_unix,
            entries: times.iter().map(entry).collect(),
            torn: u64::from(rank),
            ..crate::top::tests::flight(0, &[])
        };
        (PathBuf::from(format!("/x/{rank}")), flight)
    }

    #[test]
    fn entries_of_several_processes_are_ordered_by_time() {
        let flights = [flight(0, 1000, &[0, 2_000_000_000]), flight(1, 500, &[1_000_000_500])];
        let shown = super::shown(&flights, Vec::new(), 0);
        assert_eq!(shown.entries.iter().map(|line| line.rank).collect::<Vec<_>>(), [0, 1, 0]);
        assert_eq!(shown.entries.iter().map(|line| line.seconds).collect::<Vec<_>>(), [-2.0, -1.0, 0.0]);
        let text = shown.to_string();
        assert!(text.contains("Rank 0 of job 9 on host n0, process 100, a.out: running."), "{text}");
        assert!(text.contains("Incomplete entries, left out: 1."), "{text}");
        assert!(text.contains("-1.000000 s  rank 1     mlx5_0:1  rank 0: connection failed"), "{text}");
        assert!(text.contains("RETRY_EXC_ERR") && text.contains("All entries:"), "{text}");
    }

    #[test]
    fn several_jobs_are_summarised_and_one_is_shown_whole() {
        let (mut one, mut other) = (flight(0, 0, &[1, 2]), flight(1, 0, &[5]));
        (one.1.job, other.1.job) = (3, 4);
        let mut shown = super::shown(&[one, other], Vec::new(), 0);
        let jobs: Vec<u32> = shown.processes.iter().map(|process| process.job).collect();
        assert_eq!(jobs, [4, 3], "failed before running");
        shown.is_summary = true;
        let text = shown.to_string();
        assert!(
            text.contains("job 4: a.out on n1; rank 1 is gone, and reported no failure\n")
                && !text.contains("connection failed"),
            "{text}"
        );
        assert!(text.ends_with("ibex flight --job 4\n"), "{text}");
    }

    #[test]
    fn the_last_entries_are_shown_with_the_number_of_omitted_ones() {
        let shown = super::shown(&[flight(0, 0, &[1, 2, 3])], vec!["/x/y is damaged".into()], 2);
        assert_eq!((shown.omitted, shown.entries.len()), (1, 2));
        let text = shown.to_string();
        assert!(text.contains("last 2 entries; --last 0 shows 1 more:") && text.contains("Left out: /x/y"), "{text}");
    }
}
