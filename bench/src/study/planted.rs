// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives the proxy application (examples/halo.c) faults of known rank and duration; checks if `ibex explain --waits`
//! finds them. A fault is found if one of the longest reported waits of its kind is for a message of the application,
//! has the right duration, and names the right rank on the right side. Called by [`super`]. Grade: setup. Tests: below.

use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

pub(super) const RANKS: u32 = 4;

/// A rank and its delay in milliseconds, longer than those that a busy machine causes. Both ranks are at an end of the
/// grid, with one neighbour.
const LATE_SENDER: (u32, u32) = (0, 300);
const LATE_RECEIVER: (u32, u32) = (RANKS - 1, 200);

/// Permitted duration of a wait, in durations of its fault: it is shorter if the waiting rank is itself a little late,
/// and longer if the late rank lost its processor.
const DURATIONS: RangeInclusive<f64> = 0.75..=1.5;

/// Output of `ibex explain --waits --json`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Explained {
    pub(super) span_nanoseconds: Option<i64>,
    pub(super) kinds: Vec<Waits>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Waits {
    pub(super) kind: String,
    pub(super) count: u64,
    pub(super) nanoseconds: i64,
    pub(super) percent_of_span: Option<f64>,
    pub(super) pairs: Vec<Pair>,
    pub(super) longest: Vec<One>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Pair {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) nanoseconds: i64,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(super) struct One {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) tag: Option<i32>,
    pub(super) bytes: Option<u64>,
    pub(super) nanoseconds: i64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Finding {
    pub(super) kind: &'static str,
    /// Rank that had the fault.
    pub(super) rank: u32,
    pub(super) milliseconds: u32,
    /// The wait for this rank whose duration is closest.
    pub(super) wait: Option<One>,
    /// Its place among the waits of the kind, from 1 for the longest.
    pub(super) place: Option<usize>,
    pub(super) is_found: bool,
}

pub(super) fn words() -> [String; 4] {
    let of = |(rank, milliseconds): (u32, u32)| format!("{rank}:{milliseconds}");
    ["--late-sender".to_owned(), of(LATE_SENDER), "--late-receiver".to_owned(), of(LATE_RECEIVER)]
}

pub(super) fn found(explained: &Explained) -> Vec<Finding> {
    vec![
        of_kind(explained, "late_sender", LATE_SENDER, |one| &one.from),
        of_kind(explained, "late_receiver", LATE_RECEIVER, |one| &one.to),
    ]
}

fn of_kind(
    explained: &Explained,
    kind: &'static str,
    (rank, milliseconds): (u32, u32),
    who: fn(&One) -> &str,
) -> Finding {
    let longest = explained.kinds.iter().filter(|of| of.kind == kind).flat_map(|of| &of.longest);
    // Collective operations, which wait for late ranks, too, have negative tags.
    let is_of_rank = |one: &One| one.tag.is_some_and(|tag| tag >= 0) && who(one) == rank.to_string();
    let durations = |one: &One| one.nanoseconds as f64 / (f64::from(milliseconds) * 1e6);
    let distance = |one: &One| (durations(one) - 1.0).abs();
    let closest = longest
        .enumerate()
        .filter(|(_, one)| is_of_rank(one))
        .min_by(|(_, one), (_, other)| distance(one).total_cmp(&distance(other)));
    let (place, wait) = closest.map(|(place, one)| (place + 1, one.clone())).unzip();
    let is_found = wait.as_ref().is_some_and(|wait| DURATIONS.contains(&durations(wait)));
    Finding { kind, rank, milliseconds, wait, place, is_found }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(tag: i32, milliseconds: i64) -> Explained {
        let text = format!(
            r#"{{"span_nanoseconds": 700000000, "losses": [], "kinds": [{{"kind": "late_sender", "count": 2,
                "nanoseconds": 5, "percent_of_span": 1.0, "pairs": [{{"from": "0", "to": "1", "count": 2, "nanoseconds": 5}}],
                "longest": [{{"from": "1", "to": "3", "tag": -12, "bytes": 8, "begin_nanoseconds": 1, "nanoseconds": 300000000}},
                {{"from": "0", "to": "1", "tag": {tag}, "bytes": 8, "begin_nanoseconds": 1, "nanoseconds": {milliseconds}000000}}]}}]}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_fault_is_found_by_rank_and_duration_among_messages_of_the_application() {
        let found = super::found(&explained(2, 299));
        assert_eq!((found[0].is_found, found[0].place), (true, Some(2)));
        assert_eq!(found[0].wait.as_ref().unwrap().to, "1");
        assert!(!found[1].is_found && found[1].wait.is_none(), "there is no late receiver");
        assert!(!super::found(&explained(-12, 299))[0].is_found, "a collective operation");
        assert!(!super::found(&explained(2, 30))[0].is_found, "too short");
        assert!(!super::found(&explained(2, 600))[0].is_found, "too long");
    }

    #[test]
    fn the_program_gets_rank_and_duration_of_its_fault() {
        assert_eq!(words().join(" "), "--late-sender 0:300 --late-receiver 3:200");
    }
}
