// SPDX-License-Identifier: MIT OR Apache-2.0
//! Searches of the matching queues, from the events of their begins and ends, if the trace has these.
//!
//! A begin and an end with the same number belong to one search; without one of them the job lacks the search. The
//! thread's event before the search names its receive or message; the thread's event after it tells whether the search
//! found something (docs/peruse.md). Called by `pass.rs`. Path: pending. Threads: one. Tests: tests/searches.rs.

use std::collections::HashMap;

use crate::model::{Queue, Search};
use crate::read::vocabulary::{Element, Seen, Step};
use crate::time::Time;

/// A search, and the number of its receive or message; 0: a probe.
#[derive(Clone, Copy)]
pub(crate) struct Searched {
    pub(crate) of: u64,
    pub(crate) search: Search,
}

#[derive(Default)]
pub(crate) struct Searches {
    pub(crate) all: Vec<Searched>,
    threads: HashMap<u32, Thread>,
}

#[derive(Default)]
struct Thread {
    begun: u64,
    open: Option<(u64, Searched)>,
    /// Index in `all` of the search that the thread's last event ended.
    ended: Option<usize>,
}

impl Searches {
    /// Handles a matching event other than those of searches.
    pub(crate) fn see(&mut self, step: Step, seen: &Seen<'_>, thread: u32) {
        let state = self.threads.entry(thread).or_default();
        if let Some(ended) = state.ended.take()
            && matches!(step, Step::Remove | Step::Taken)
        {
            self.all[ended].search.is_found = Some(true);
        }
        let is_begin = matches!(step, Step::Activate | Step::Arrived) && seen.value(Element::Operation) != 0;
        state.begun = if is_begin { seen.value(Element::Id) } else { 0 };
    }

    pub(crate) fn begin(&mut self, queue: Queue, seen: &Seen<'_>, time: Option<Time>, thread: u32) {
        let state = self.threads.entry(thread).or_default();
        let of = std::mem::take(&mut state.begun);
        let length = match queue {
            Queue::Posted => Element::Posted,
            Queue::Unexpected => Element::Unexpected,
        };
        let search = |begun| Search {
            rank: 0,
            thread,
            queue,
            peer: seen.signed(Element::Peer),
            tag: seen.value(Element::Tag).cast_signed(),
            length: seen.has(length).then(|| seen.unsigned(length)),
            message: None,
            is_found: (of != 0).then_some(false),
            begun,
            ended: begun,
        };
        state.open = time.map(|time| (seen.value(Element::Id), Searched { of, search: search(time) }));
        state.ended = None;
    }

    pub(crate) fn end(&mut self, queue: Queue, seen: &Seen<'_>, time: Option<Time>, thread: u32) {
        let state = self.threads.entry(thread).or_default();
        let Some((number, mut searched)) = state.open.take() else { return };
        let search = &mut searched.search;
        if let Some(ended) = time
            && (number, search.queue) == (seen.value(Element::Id), queue)
        {
            search.ended = ended.max(search.begun);
            state.ended = Some(self.all.len());
            self.all.push(searched);
        }
    }
}
