// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queues of the matching, rank by rank: number of entries, greatest length, times of entries and of searches. MEL,
//! the tool of the paper, prints the same at the end of a job, from the same pairs of events: a receive enters the
//! queue of posted receives and leaves it for its message, a message enters the queue of unexpected ones and leaves it
//! for its receive, a search begins and ends. Nanoseconds. Called by [`super::application`]. Setup grade. Tests: below.

use std::collections::HashMap;

use ibex_messages::{Job, ReceiveSide, Time};
use ibex_trace::Reader;
use serde::Serialize;

use super::distribution::Distribution;

/// Entries of a queue of a rank, or searches in it; at least one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Queue {
    pub(super) rank: u32,
    #[serde(rename = "queue")]
    pub(super) name: &'static str,
    /// Greatest number of entries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) longest: Option<usize>,
    /// How long entries stayed, or searches took.
    pub(super) took: Distribution,
}

const POSTED: &str = "posted";
const UNEXPECTED: &str = "unexpected";

/// Returns the queues of all ranks, without messages that no receive has taken.
pub(super) fn queues(job: &Job) -> Vec<Queue> {
    let of = |rank: u32, name, entered: fn(ReceiveSide) -> Option<Time>| {
        let sides = job.messages.iter().filter(|message| message.receiver == rank).filter_map(|one| one.receive);
        let stay = |side: ReceiveSide| Some((entered(side)?.nanoseconds(), side.matched?.nanoseconds()));
        let stays: Vec<(i64, i64)> = sides.filter_map(stay).collect();
        let took = Distribution::of(stays.iter().map(|(from, to)| (to - from) as f64).collect())?;
        Some(Queue { rank, name, longest: Some(longest(&stays)), took })
    };
    let of_rank = |rank| [of(rank, POSTED, |side| side.posted), of(rank, UNEXPECTED, |side| side.unexpected)];
    (0..job.ranks.len() as u32).flat_map(of_rank).flatten().collect()
}

/// Returns the greatest number of entries at one time. If one leaves when another enters, they count as one.
fn longest(stays: &[(i64, i64)]) -> usize {
    let mut steps: Vec<(i64, i64)> = stays.iter().flat_map(|(from, to)| [(*from, 1), (*to, -1)]).collect();
    steps.sort_unstable();
    let mut length = 0;
    let lengths = steps.iter().map(|(_, step)| {
        length += step;
        length
    });
    lengths.max().unwrap_or(0).max(0) as usize
}

pub(super) fn searches(readers: &[Reader]) -> Vec<Queue> {
    let rows = readers.iter().flat_map(|reader| {
        let (rank, found) = (reader.head().rank.unwrap_or(0), of_rank(reader));
        let row = |(name, took)| Some(Queue { rank, name, longest: None, took: Distribution::of(took)? });
        found.into_iter().filter_map(row).collect::<Vec<_>>()
    });
    rows.collect()
}

/// Returns the times of a process' searches, by queue. The events of a search carry the same number.
fn of_rank(reader: &Reader) -> [(&'static str, Vec<f64>); 2] {
    let types = &reader.head().types;
    let steps: Vec<Option<(usize, bool, usize)>> = types
        .iter()
        .map(|of| {
            let (queue, is_begin) = step(&of.name)?;
            Some((queue, is_begin, of.element("id")?))
        })
        .collect();
    let mut begun: HashMap<(usize, u64), i64> = HashMap::new();
    let mut took = [(POSTED, Vec::new()), (UNEXPECTED, Vec::new())];
    for event in reader.events().flatten() {
        let Some(Some((queue, is_begin, id))) = steps.get(usize::from(event.event_type)) else { continue };
        let (Some(time), Some(id)) = (event.time, event.values.get(*id)) else { continue };
        if *is_begin {
            begun.insert((*queue, *id), time);
        } else if let Some(from) = begun.remove(&(*queue, *id)) {
            took[*queue].1.push((time - from) as f64);
        }
    }
    took
}

/// Returns the queue whose search an event belongs to, and whether it is the begin.
fn step(event: &str) -> Option<(usize, bool)> {
    match event.strip_prefix("ibex_comm_search_")? {
        "posted_q_begin" => Some((0, true)),
        "posted_q_end" => Some((0, false)),
        "unex_q_begin" => Some((1, true)),
        "unex_q_end" => Some((1, false)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_as_long_as_its_entries_overlap() {
        assert_eq!(longest(&[]), 0);
        assert_eq!(longest(&[(0, 10), (10, 20)]), 1, "one goes when the other comes");
        assert_eq!(longest(&[(0, 10), (5, 20), (6, 7), (8, 9)]), 3);
    }

    #[test]
    fn each_message_is_in_one_queue_of_its_receiver() {
        let job = Job::synthetic(3, 300, 5);
        let queues = queues(&job);
        assert_eq!(queues.len(), 6);
        let entries: usize = queues.iter().map(|queue| queue.took.count).sum();
        assert_eq!(entries, 300);
        for queue in &queues {
            let of_rank = job.messages.iter().filter(|message| message.receiver == queue.rank).count();
            assert!(queue.took.count < of_rank && queue.longest >= Some(1) && queue.took.least >= 0.0, "{queue:?}");
        }
    }

    #[test]
    fn events_of_searches_are_distinguished_from_others() {
        assert_eq!(step("ibex_comm_search_unex_q_end"), Some((1, false)));
        assert_eq!(step("ibex_comm_search_posted_q_begin"), Some((0, true)));
        assert_eq!(step("ibex_comm_msg_arrived"), None);
    }
}
