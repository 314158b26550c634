// SPDX-License-Identifier: MIT OR Apache-2.0
//! Searches of the matching queues, from the events of their begins and ends, where these are recorded.
//!
//! A thread searches one queue at a time; a begin and an end with the same number are of one search, and one of which
//! either is lost is left out. The event before a search of the same thread says what it is for, and the one after it
//! whether it found something (docs/peruse.md). Called by `pass.rs`. Path: pending, twice for each search, and once per
//! event of the matching where there are searches. Threads: one. Tests: tests/searches.rs.

use std::collections::HashMap;

use crate::model::{Queue, Search};
use crate::read::vocabulary::{Seen, Step, matching};
use crate::time::Time;

/// A search, and the number of the receive or of the message that it is for; 0 of a probe.
#[derive(Clone, Copy)]
pub(crate) struct Searched {
    pub(crate) of: u64,
    pub(crate) search: Search,
}

/// The searches so far.
#[derive(Default)]
pub(crate) struct Searches {
    pub(crate) all: Vec<Searched>,
    threads: HashMap<u32, Thread>,
}

#[derive(Default)]
struct Thread {
    /// The receive or message that begins with the last event; 0 if none does.
    begun: u64,
    /// What is searched now, and the search's number.
    open: Option<(u64, Searched)>,
    /// The search that has ended with the last event.
    ended: Option<usize>,
}

impl Searches {
    /// Another event of the matching.
    pub(crate) fn see(&mut self, step: Step, seen: &Seen<'_>, thread: u32) {
        let state = self.threads.entry(thread).or_default();
        if let Some(ended) = state.ended.take()
            && matches!(step, Step::Remove | Step::Taken)
        {
            self.all[ended].search.is_found = Some(true);
        }
        let is_begin = matches!(step, Step::Activate | Step::Arrived) && seen.value(matching::OPERATION) != 0;
        state.begun = if is_begin { seen.value(matching::ID) } else { 0 };
    }

    pub(crate) fn begin(&mut self, queue: Queue, seen: &Seen<'_>, time: Option<Time>, thread: u32) {
        let state = self.threads.entry(thread).or_default();
        let of = std::mem::take(&mut state.begun);
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
            message: None,
            is_found: (of != 0).then_some(false),
            begun,
            ended: begun,
        };
        state.open = time.map(|time| (seen.value(matching::ID), Searched { of, search: search(time) }));
        state.ended = None;
    }

    pub(crate) fn end(&mut self, queue: Queue, seen: &Seen<'_>, time: Option<Time>, thread: u32) {
        let state = self.threads.entry(thread).or_default();
        let Some((number, mut searched)) = state.open.take() else { return };
        let search = &mut searched.search;
        if let Some(ended) = time
            && (number, search.queue) == (seen.value(matching::ID), queue)
        {
            search.ended = ended.max(search.begun);
            state.ended = Some(self.all.len());
            self.all.push(searched);
        }
    }
}
