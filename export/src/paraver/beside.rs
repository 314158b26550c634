// SPDX-License-Identifier: MIT OR Apache-2.0
//! The records that the walk over messages does not make, sorted by time: states of threads, edges of regions, and
//! flags. Called by `mod.rs` before each step of the walk. Path: once for each record. Threads: one. Times: since
//! the job's first moment, ns. Tests: tests/paraver.rs.

use ibex_messages::Job;

use super::{calls, peruse};
use crate::regions::{Edge, Regions};
use crate::threads::Threads;

#[derive(Clone, Copy)]
pub(super) enum OfThread {
    State(calls::Span),
    Edge(Edge),
    /// Time, thread and event.
    Flag((u64, u32, peruse::Event)),
}

impl OfThread {
    fn time(&self) -> u64 {
        match self {
            OfThread::State(span) => span.begin,
            OfThread::Edge(edge) => edge.time,
            OfThread::Flag((time, ..)) => *time,
        }
    }
}

pub(super) struct Beside {
    pub(super) functions: Vec<calls::Function>,
    all: Vec<OfThread>,
    next: usize,
    /// Time of the last entry.
    pub(super) last: u64,
}

impl Beside {
    pub(super) fn of(job: &Job, threads: &Threads) -> Beside {
        let functions = calls::functions(job);
        let mut regions = Regions::of(job, threads);
        let edges = std::iter::from_fn(|| regions.before(u64::MAX)).map(OfThread::Edge);
        let spans = calls::spans(job, threads, &functions).into_iter().map(OfThread::State);
        let flags = peruse::others(job, threads).into_iter().map(OfThread::Flag);
        let mut all: Vec<OfThread> = spans.chain(edges).chain(flags).collect();
        all.sort_by_key(OfThread::time);
        // No state ends later: each ends with a call or a pause, or when one begins.
        let last = all.last().map_or(0, OfThread::time);
        Beside { functions, all, next: 0, last }
    }

    /// Returns the next entry, if it is not later than this time.
    pub(super) fn before(&mut self, time: u64) -> Option<OfThread> {
        let next = self.all.get(self.next).filter(|next| next.time() <= time).copied();
        self.next += usize::from(next.is_some());
        next
    }
}
