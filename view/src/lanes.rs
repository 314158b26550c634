// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lanes: the rows of the time line. One for each rank, or for each thread of a rank that has several. Messages refer
//! to lanes, not ranks, so that the page needs no look-up. Callers: the files that write messages. Tests: below.

use ibex_messages::{Job, Message};
use serde::Serialize;
use std::collections::HashMap;

/// A row of the time line.
#[derive(Serialize)]
pub(crate) struct Lane {
    /// An index in `Job::ranks`.
    pub(crate) rank: u32,
    /// Its name among the lanes of the rank; empty if it is the only one.
    pub(crate) thread: String,
}

/// All of them, by rank.
pub(crate) struct Lanes {
    pub(crate) all: Vec<Lane>,
    first: Vec<u32>,
    by_thread: HashMap<(u32, u32), u32>,
}

impl Lanes {
    pub(crate) fn of(job: &Job) -> Lanes {
        let mut lanes = Lanes { all: Vec::new(), first: Vec::new(), by_thread: HashMap::new() };
        for (place, rank) in (0..).zip(&job.ranks) {
            lanes.first.push(lanes.all.len() as u32);
            for (number, name) in &rank.threads {
                lanes.by_thread.insert((place, *number), lanes.all.len() as u32);
                let thread = match (rank.threads.len(), name.as_str()) {
                    (1, _) => String::new(),
                    (_, "") => format!("thread {number}"),
                    (_, name) => name.to_owned(),
                };
                lanes.all.push(Lane { rank: place, thread });
            }
            if rank.threads.is_empty() {
                lanes.all.push(Lane { rank: place, thread: String::new() });
            }
        }
        lanes
    }

    /// Of a rank: the first.
    pub(crate) fn of_rank(&self, rank: u32) -> u32 {
        self.first.get(rank as usize).copied().unwrap_or_default()
    }

    /// The sender's and the receiver's.
    pub(crate) fn of_message(&self, message: &Message) -> (u32, u32) {
        let of = |rank, thread: Option<u32>| {
            let known = thread.and_then(|thread| self.by_thread.get(&(rank, thread)).copied());
            known.unwrap_or_else(|| self.of_rank(rank))
        };
        let sender = of(message.sender, message.send.map(|side| side.thread));
        let receiver = of(message.receiver, message.receive.map(|side| side.thread));
        (sender, receiver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_with_two_threads_has_two_lanes_and_one_without_any_has_one() {
        let mut job = Job::synthetic(3, 10, 1);
        job.ranks[0].threads.clear();
        job.ranks[1].threads = vec![(4, String::new()), (7, "poller".to_owned())];
        let lanes = Lanes::of(&job);
        let all: Vec<_> = lanes.all.iter().map(|lane| (lane.rank, lane.thread.as_str())).collect();
        assert_eq!(all, [(0, ""), (1, "thread 4"), (1, "poller"), (2, "")]);
        let mut message = job.messages[0].clone();
        (message.sender, message.receiver) = (1, 2);
        message.send.as_mut().unwrap().thread = 7;
        assert_eq!(lanes.of_message(&message), (2, 3));
        message.send = None;
        assert_eq!(lanes.of_message(&message), (1, 3));
    }
}
