// SPDX-License-Identifier: MIT OR Apache-2.0
//! The jobs of several flight recorders, the last failure first. Called by `flight`. Grade: setup. Tests: below.

use chrono::DateTime;
use ibex::flight::Flight;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

const MOST_REASONS: usize = 3;

const MOST_LETTERS: usize = 160;

#[derive(Serialize)]
pub(super) struct Job {
    #[serde(rename = "job")]
    pub(super) number: u32,
    /// Time of the last write of a process, nanoseconds since 1970.
    pub(super) last_ns: u64,
    programs: BTreeSet<String>,
    hosts: BTreeSet<String>,
    running: BTreeSet<u32>,
    gone: BTreeSet<u32>,
    reasons: BTreeMap<u32, String>,
}

impl Job {
    /// Returns the jobs: first those with a failure or an ended process, the latest first, then the others.
    pub(super) fn of<'a>(flights: impl Iterator<Item = &'a Flight>) -> Vec<Job> {
        let mut jobs: BTreeMap<u32, Job> = BTreeMap::new();
        for flight in flights {
            let (programs, hosts) = (BTreeSet::new(), BTreeSet::new());
            let (running, gone, reasons) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
            let new = Job { number: flight.job, last_ns: 0, programs, hosts, running, gone, reasons };
            let job = jobs.entry(flight.job).or_insert(new);
            job.last_ns = job.last_ns.max(last(flight));
            job.programs.insert(flight.program.clone());
            job.hosts.insert(flight.host.clone());
            if flight.is_alive { &mut job.running } else { &mut job.gone }.insert(flight.rank);
            if !flight.reason.is_empty() {
                job.reasons.insert(flight.rank, flight.reason.clone());
            }
        }
        let mut jobs: Vec<Job> = jobs.into_values().collect();
        jobs.sort_by_key(|job| std::cmp::Reverse((job.has_failed(), job.last_ns)));
        jobs
    }

    fn has_failed(&self) -> bool {
        !self.gone.is_empty() || !self.reasons.is_empty()
    }
}

/// Returns the time of a process's last write (an entry or its counts), nanoseconds since 1970.
pub(super) fn last(flight: &Flight) -> u64 {
    let entries = flight.entries.iter().map(|entry| entry.time);
    let counts = flight.ports.iter().filter_map(|port| port.time);
    entries.chain(counts).max().map_or(0, |time| time.wrapping_add(flight.to_unix))
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |words: &BTreeSet<String>| words.iter().cloned().collect::<Vec<_>>().join(", ");
        let (programs, hosts) = (words(&self.programs), words(&self.hosts));
        let of_ranks = |ranks: &BTreeSet<u32>, one: &str, several: &str| match ranks.len() {
            0 => String::new(),
            1 => format!("; rank {} {one}", runs(ranks)),
            _ => format!("; ranks {} {several}", runs(ranks)),
        };
        let (gone, running) = (of_ranks(&self.gone, "is gone", "are gone"), of_ranks(&self.running, "runs", "run"));
        let silent = if self.reasons.is_empty() && self.has_failed() { ", and reported no failure" } else { "" };
        writeln!(f, "{}  job {}: {programs} on {hosts}{running}{gone}{silent}", date(self.last_ns), self.number)?;
        for (rank, reason) in self.reasons.iter().take(MOST_REASONS) {
            let first = reason.lines().next().unwrap_or_default();
            let cut = first
                .char_indices()
                .nth(MOST_LETTERS)
                .map_or(first.to_owned(), |(at, _)| format!("{} ...", &first[..at]));
            writeln!(f, "  rank {rank}: {cut}")?;
        }
        let more = self.reasons.len().saturating_sub(MOST_REASONS);
        if more > 0 {
            writeln!(f, "  {more} more ranks reported a failure")?;
        }
        Ok(())
    }
}

/// Returns the numbers, with ranges as `0-3`.
fn runs(numbers: &BTreeSet<u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let words = |(first, last): (u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    runs.into_iter().map(words).collect::<Vec<_>>().join(", ")
}

pub(super) fn date(nanoseconds: u64) -> String {
    DateTime::from_timestamp_nanos(nanoseconds.cast_signed()).format("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// Returns how long ago a time was, for readers who do not think in UTC.
pub(super) fn age(nanoseconds: u64) -> String {
    let since = (UNIX_EPOCH + Duration::from_nanos(nanoseconds)).elapsed().unwrap_or_default().as_secs();
    match since {
        0..120 => format!("{since} s ago"),
        120..7200 => format!("{} minutes ago", since / 60),
        7200..172_800 => format!("{} hours ago", since / 3600),
        _ => format!("{} days ago", since / 86400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flight::tests::flight;

    #[test]
    fn the_job_that_failed_last_comes_first_and_those_that_run_come_last() {
        let of = |job: u32, rank: u32, time: u64, is_alive: bool, reason: &str| Flight {
            job,
            is_alive,
            reason: reason.to_owned(),
            ..flight(rank, 1_795_000_000_000_000_000, &[time]).1
        };
        let flights = [
            of(7, 0, 10, false, ""),
            of(9, 0, 99, true, ""),
            of(8, 2, 20, false, "ibex lost a peer: rank 1\nmore"),
            of(8, 0, 5, false, ""),
            of(8, 1, 5, false, ""),
        ];
        let jobs = Job::of(flights.iter());
        assert_eq!(jobs.iter().map(|job| job.number).collect::<Vec<_>>(), [8, 7, 9]);
        let text: Vec<String> = jobs.iter().map(ToString::to_string).collect();
        assert_eq!(
            text[0],
            "2026-11-18 11:06:40 UTC  job 8: a.out on n0, n1, n2; ranks 0-2 are gone\n  rank 2: ibex lost a peer: rank 1\n"
        );
        assert!(text[1].ends_with("rank 0 is gone, and reported no failure\n"), "{}", text[1]);
        assert!(text[2].ends_with("job 9: a.out on n0; rank 0 runs\n"), "{}", text[2]);
    }

    #[test]
    fn a_job_of_many_ranks_takes_few_lines() {
        let flights: Vec<Flight> =
            (0..64).map(|rank| Flight { reason: "lost".into(), ..flight(rank, 0, &[1]).1 }).collect();
        let jobs = Job::of(flights.iter());
        let text = jobs[0].to_string();
        assert!(text.contains("0 runs; ranks 1-63 are gone\n") && text.contains("61 more ranks reported"), "{text}");
        assert_eq!(text.lines().count(), 5, "{text}");
    }
}
