// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time of each rank in MPI calls, by function. The recorder records only calls in which a process can wait. Called
//! by `receipt`. Grade: setup. Tests: below.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ibex_messages::Job;
use serde::Serialize;

use super::text::{duration, name, table};

#[derive(Serialize)]
pub(super) struct Called {
    rank: String,
    function: String,
    calls: u64,
    nanoseconds: i64,
    longest_nanoseconds: i64,
}

/// Sums the calls by rank and function, ordered by rank, then by descending time. A call that has not returned lasts
/// until the job's last moment. A call whose end was lost is left out.
pub(super) fn by_function(job: &Job) -> Vec<Called> {
    let mut known: BTreeMap<(u32, &str), (u64, i64, i64)> = BTreeMap::new();
    for call in job.calls.iter().filter(|call| call.ended != Some(call.begun)) {
        let ended = call.ended.or(job.span.map(|(_, last)| last));
        let took = ended.map_or(0, |ended| ended.since(call.begun).max(0));
        let (count, all, longest) = known.entry((call.rank, job.function(call))).or_default();
        (*count, *all, *longest) = (*count + 1, all.saturating_add(took), took.max(*longest));
    }
    let mut known: Vec<_> = known.into_iter().collect();
    known.sort_by_key(|((rank, _), (_, all, _))| (*rank, Reverse(*all)));
    let called = |((rank, function), (calls, nanoseconds, longest_nanoseconds)): ((u32, &str), _)| Called {
        rank: name(job, rank),
        function: function.to_owned(),
        calls,
        nanoseconds,
        longest_nanoseconds,
    };
    known.into_iter().map(called).collect()
}

pub(super) fn shown(all: &[Called]) -> impl std::fmt::Display {
    let rows = all.iter().map(|of| {
        let times = (duration(of.nanoseconds), duration(of.longest_nanoseconds));
        vec![of.rank.clone(), of.function.clone(), of.calls.to_string(), times.0, times.1]
    });
    table(&["rank", "MPI call", "calls", "time", "longest"], &[2, 3, 4], rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibex_messages::{Call, Time};

    #[test]
    fn the_time_of_a_rank_is_by_function_and_the_longest_comes_first() {
        let mut job = Job { functions: vec!["MPI_Recv".to_owned(), "MPI_Wait".to_owned()], ..Job::default() };
        job.ranks = vec![ibex_messages::Rank::default(), ibex_messages::Rank { rank: 1, ..Default::default() }];
        job.span = Some((Time::new(0), Time::new(1000)));
        let call = |rank, function, begun, ended: Option<i64>| {
            Call::made(rank, function, Time::new(begun), ended.map(Time::new))
        };
        job.calls = vec![
            call(0, 0, 100, Some(110)),
            call(0, 0, 120, Some(150)),
            // A call whose end was lost.
            call(0, 0, 200, Some(200)),
            call(0, 1, 300, Some(400)),
            // A call that had not returned.
            call(1, 1, 700, None),
        ];
        let found: Vec<_> = by_function(&job)
            .into_iter()
            .map(|of| (of.rank, of.function, of.calls, of.nanoseconds, of.longest_nanoseconds))
            .collect();
        let row = |rank: &str, function: &str, calls, all, longest| {
            (rank.to_owned(), function.to_owned(), calls, all, longest)
        };
        let wanted =
            [row("0", "MPI_Wait", 1, 100, 100), row("0", "MPI_Recv", 2, 40, 30), row("1", "MPI_Wait", 1, 300, 300)];
        assert_eq!(found, wanted);
    }
}
