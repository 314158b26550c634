// SPDX-License-Identifier: MIT OR Apache-2.0
//! Searches of the matching queues, from the events of their begins and ends, where these are recorded.
//!
//! A thread searches one queue at a time; a begin and an end with the same number are of one search, and one of which
//! either is lost is left out. Called by `pass.rs`. Path: pending, twice for each search. Threads: one. Tests:
//! tests/searches.rs.

use std::collections::HashMap;

use crate::model::{Queue, Search};
use crate::read::vocabulary::{Seen, matching};
use crate::time::Time;

/// The searches so far.
#[derive(Default)]
pub(crate) struct Searches {
    pub(crate) all: Vec<Search>,
    /// Of each thread the one that has begun, and its number.
    open: HashMap<u32, (u64, Search)>,
}

impl Searches {
    pub(crate) fn begin(&mut self, queue: Queue, seen: &Seen<'_>, time: Option<Time>, thread: u32) {
        let length = match queue {
            Queue::Posted => matching::POSTED,
            Queue::Unexpected => matching::UNEXPECTED,
        };
        let search = |begun| Search {
            rank: 0,
            thread,
            queue,
            peer: seen.signed(matching::PEER),
            tag: seen.signed(matching::TAG),
            length: seen.has(length).then(|| seen.unsigned(length)),
            begun,
            ended: begun,
        };
        match time.map(search) {
            Some(search) => self.open.insert(thread, (seen.value(matching::ID), search)),
            None => self.open.remove(&thread),
        };
    }

    pub(crate) fn end(&mut self, queue: Queue, seen: &Seen<'_>, time: Option<Time>, thread: u32) {
        let Some((number, search)) = self.open.remove(&thread) else { return };
        if let Some(ended) = time
            && (number, search.queue) == (seen.value(matching::ID), queue)
        {
            self.all.push(Search { ended: ended.max(search.begun), ..search });
        }
    }
}
