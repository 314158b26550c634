// SPDX-License-Identifier: MIT OR Apache-2.0
//! The threads of all ranks in one list, numbered consecutively for the formats. A rank without known threads has one.
//! Called by `walk.rs` and the formats. Path: setup; a look-up is two steps. Threads: plain data. Tests: below.

use ibex_messages::{Job, Rank};

use crate::life::Item;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Thread {
    pub(crate) rank: u32,
    pub(crate) number: u32,
}

/// The threads of a job, by rank and number.
pub(crate) struct Threads {
    all: Vec<Thread>,
    /// Index of the first thread of each rank.
    first: Vec<u32>,
}

impl Threads {
    pub(crate) fn of(job: &Job) -> Threads {
        let mut threads = Threads { all: Vec::new(), first: Vec::new() };
        for (rank, described) in job.ranks.iter().enumerate() {
            threads.first.push(threads.all.len() as u32);
            let mut numbers = described.threads.clone();
            numbers.sort_unstable();
            numbers.dedup();
            if numbers.is_empty() {
                numbers.push(0);
            }
            let rank = rank as u32;
            threads.all.extend(numbers.into_iter().map(|number| Thread { rank, number }));
        }
        threads
    }

    pub(crate) fn all(&self) -> &[Thread] {
        &self.all
    }

    pub(crate) fn first_of(&self, rank: u32) -> u32 {
        self.first[rank as usize]
    }

    pub(crate) fn of_rank(&self, rank: u32) -> std::ops::Range<u32> {
        let end = self.first.get(rank as usize + 1).copied().unwrap_or(self.all.len() as u32);
        self.first_of(rank)..end
    }

    /// Returns the index of a thread, or of the rank's first if there is no such number.
    pub(crate) fn find(&self, rank: u32, number: u32) -> u32 {
        let range = self.of_rank(rank);
        let own = &self.all[range.start as usize..range.end as usize];
        own.binary_search_by_key(&number, |thread| thread.number)
            .map_or(range.start, |place| range.start + place as u32)
    }

    /// Returns a thread's name for lists without ranks: a single thread has the name of its rank.
    pub(crate) fn name_in_job(&self, job: &Job, place: u32) -> String {
        let thread = &self.all[place as usize];
        let rank = rank_name(&job.ranks[thread.rank as usize]);
        if self.of_rank(thread.rank).len() == 1 { rank } else { format!("{rank} thread {}", thread.number) }
    }

    /// Returns the thread of an item.
    pub(crate) fn of_item(&self, job: &Job, item: Item) -> u32 {
        match item {
            Item::Send(place) => {
                let message = &job.messages[place as usize];
                self.find(message.sender, message.send.map_or(0, |side| side.thread))
            }
            Item::Receive(place) => {
                let message = &job.messages[place as usize];
                self.find(message.receiver, message.receive.map_or(0, |side| side.thread))
            }
            Item::Operation(place) => self.first_of(job.operations[place as usize].rank),
            Item::Connection(place) => self.first_of(job.connections[place as usize].rank),
            Item::Incident(place) => self.first_of(job.incidents[place as usize].rank),
        }
    }
}

pub(crate) fn rank_name(rank: &Rank) -> String {
    if rank.world == 0 { format!("rank {}", rank.rank) } else { format!("world {} rank {}", rank.world, rank.rank) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_thread_is_the_first_and_a_rank_without_threads_has_one() {
        let mut job = Job::synthetic(3, 0, 0);
        job.ranks[0].threads = vec![7, 2];
        job.ranks[1].threads.clear();
        let threads = Threads::of(&job);
        assert_eq!(threads.all().len(), 4);
        assert_eq!(threads.name_in_job(&job, threads.find(0, 7)), "rank 0 thread 7");
        assert_eq!(threads.name_in_job(&job, threads.first_of(1)), "rank 1");
        assert_eq!(threads.find(0, 3), threads.first_of(0));
        assert_eq!(threads.of_rank(1), 2..3);
        assert_eq!(threads.find(2, 0), 3);
    }
}
