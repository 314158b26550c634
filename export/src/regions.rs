// SPDX-License-Identifier: MIT OR Apache-2.0
//! MPI calls and searches of queues as regions of their threads, and pauses of the recording: the begins and ends of
//! all, in the order of time. The regions of a thread nest: a search ends with its call at the latest, even if the
//! clocks disagree. A call whose end was lost is left out; a call that had not returned lasts until the job's last
//! moment. Called by the formats, beside the walk (`walk.rs`). Path: once for each region. Threads: one. Memory: two
//! edges for each region. Times: nanoseconds since the job's first moment. Tests: below.

use std::cmp::Reverse;

use ibex_messages::{Job, Message, Time};

use crate::threads::Threads;
use crate::walk;

/// A region, by its index in the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Region {
    Call(u32),
    Search(u32),
    /// A pause of all threads of a rank.
    Pause(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) time: u64,
    /// Index in [`Threads`]; for a pause, that of the rank's first thread.
    pub(crate) thread: u32,
    pub(crate) region: Region,
    pub(crate) is_begin: bool,
}

pub(crate) struct Regions {
    edges: Vec<Edge>,
    next: usize,
}

impl Regions {
    pub(crate) fn of(job: &Job, threads: &Threads) -> Regions {
        let (first, last) = (walk::first(job), last(job));
        // Whether it is a pause, thread, begin, end.
        let mut all: Vec<(bool, u32, u64, Reverse<u64>, Region)> = Vec::new();
        let mut add = |thread: u32, begun: Time, ended: Option<Time>, region: Region| {
            let begun = walk::since(first, begun);
            let ended = walk::since(first, ended.unwrap_or(last)).max(begun);
            all.push((matches!(region, Region::Pause(_)), thread, begun, Reverse(ended), region));
        };
        for (place, call) in (0..).zip(&job.calls) {
            if call.ended != Some(call.begun) {
                add(threads.find(call.rank, call.thread), call.begun, call.ended, Region::Call(place));
            }
        }
        for (place, search) in (0..).zip(&job.searches) {
            let thread = threads.find(search.rank, search.thread);
            add(thread, search.begun, Some(search.ended), Region::Search(place));
        }
        for (place, pause) in (0..).zip(&job.pauses) {
            add(threads.first_of(pause.rank), pause.from, pause.to, Region::Pause(place));
        }
        // If regions begin together, the longest contains the others.
        all.sort_unstable();
        let mut edges = Vec::with_capacity(2 * all.len());
        for of_one in all.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1)) {
            nest(
                of_one.iter().map(|(_, thread, begun, ended, region)| (*thread, *begun, ended.0, *region)),
                &mut edges,
            );
        }
        // The sort is stable, so edges of a thread keep their order.
        edges.sort_by_key(|edge| edge.time);
        Regions { edges, next: 0 }
    }

    /// Returns the next edge if it comes before an event at this time: a simultaneous begin does, an end does not.
    pub(crate) fn before(&mut self, time: u64) -> Option<Edge> {
        let edge = self.edges.get(self.next)?;
        let is_before = edge.time < time || (edge.time == time && edge.is_begin);
        is_before.then(|| {
            self.next += 1;
            self.edges[self.next - 1]
        })
    }
}

/// Adds the edges of a thread's regions, which are ordered by their begins.
fn nest(regions: impl Iterator<Item = (u32, u64, u64, Region)>, edges: &mut Vec<Edge>) {
    let mut open: Vec<(u64, Edge)> = Vec::new();
    let end = |(time, begin): (u64, Edge)| Edge { time, is_begin: false, ..begin };
    for (thread, begun, ended, region) in regions {
        while let Some(ended) = open.pop_if(|(ended, _)| *ended <= begun) {
            edges.push(end(ended));
        }
        let ended = open.last().map_or(ended, |(outer, _)| ended.min(*outer));
        let begin = Edge { time: begun, thread, region, is_begin: true };
        edges.push(begin);
        open.push((ended, begin));
    }
    edges.extend(open.into_iter().rev().map(end));
}

pub(crate) fn last(job: &Job) -> Time {
    let calls = job.calls.iter().map(|call| call.ended.unwrap_or(call.begun));
    let pauses = job.pauses.iter().map(|pause| pause.to.unwrap_or(pause.from));
    let others = job.searches.iter().map(|search| search.ended).chain(job.span.map(|(_, last)| last));
    let all = job.messages.iter().flat_map(Message::moments).chain(calls).chain(pauses).chain(others);
    all.max().unwrap_or(Time::new(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibex_messages::{Call, Pause, Search};

    fn call(thread: u32, begun: i64, ended: Option<i64>) -> Call {
        Call { thread, ..Call::made(0, 0, Time::new(begun), ended.map(Time::new)) }
    }

    fn search(thread: u32, begun: i64, ended: i64) -> Search {
        Search { thread, ..Search::made(0, Time::new(begun), Time::new(ended)) }
    }

    /// Returns time and thread of each edge, and the regions then open in the thread.
    fn edges(job: &Job) -> Vec<(u64, u32, Vec<Region>)> {
        let threads = Threads::of(job);
        let mut regions = Regions::of(job, &threads);
        let mut open: Vec<Vec<Region>> = vec![Vec::new(); threads.all().len()];
        let edges = std::iter::from_fn(|| regions.before(u64::MAX));
        let edges = edges.map(|edge| {
            let open = &mut open[edge.thread as usize];
            if edge.is_begin {
                open.push(edge.region);
            } else {
                assert_eq!(open.pop(), Some(edge.region), "they nest");
            }
            (edge.time, edge.thread, open.clone())
        });
        edges.collect()
    }

    #[test]
    fn a_search_is_within_its_call_whatever_clocks_make_of_its_end() {
        let mut job = Job::synthetic(1, 0, 0);
        job.ranks[0].threads.push(1);
        job.calls =
            vec![call(0, 1000, Some(1100)), call(1, 1010, Some(1020)), call(0, 1100, Some(1150)), call(0, 1160, None)];
        job.searches = vec![search(0, 1000, 1090), search(0, 1095, 1107), search(0, 1110, 1110), search(1, 1030, 1040)];
        job.calls.insert(0, call(0, 990, Some(990)));
        let [first, second, third, other] = [1, 3, 4, 2].map(Region::Call);
        let wanted = [
            (10, 0, vec![first]),
            (10, 0, vec![first, Region::Search(0)]),
            (20, 1, vec![other]),
            (30, 1, vec![]),
            (40, 1, vec![Region::Search(3)]),
            (50, 1, vec![]),
            (100, 0, vec![first]),
            (105, 0, vec![first, Region::Search(1)]),
            (110, 0, vec![first]),
            (110, 0, vec![]),
            (110, 0, vec![second]),
            (120, 0, vec![second, Region::Search(2)]),
            (120, 0, vec![second]),
            (160, 0, vec![]),
            (170, 0, vec![third]),
            (170, 0, vec![]),
        ];
        assert_eq!(edges(&job), wanted);
    }

    #[test]
    fn regions_of_any_times_nest_and_each_begins_and_ends_once() {
        let job = Job::synthetic(3, 2000, 9);
        let edges = edges(&job);
        assert_eq!(edges.len(), 2 * job.calls.len());
        assert!(edges.is_sorted_by_key(|(time, ..)| *time));
    }

    #[test]
    fn an_event_follows_simultaneous_begins_and_precedes_simultaneous_ends() {
        let mut job = Job::synthetic(2, 0, 0);
        job.calls = vec![call(0, 100, Some(150)), call(0, 150, Some(200))];
        job.pauses = vec![Pause { rank: 1, from: Time::new(120), to: None }];
        let threads = Threads::of(&job);
        let mut regions = Regions::of(&job, &threads);
        let mut before = |time| std::iter::from_fn(|| regions.before(time)).count();
        assert_eq!([before(0), before(20), before(50), before(51), before(100), before(101)], [1, 1, 0, 2, 0, 2]);
    }
}
