// SPDX-License-Identifier: MIT OR Apache-2.0
//! States, edges of regions and fragments, in the order of time. Called by `mod.rs`, before each step of the walk.
//! Path: once for each. Threads: one. Times: nanoseconds since the job's first moment. Tests: tests/paraver.rs.

use ibex_messages::{Fragment, Job};

use super::calls;
use crate::regions::{Edge, Regions};
use crate::threads::Threads;
use crate::walk;

#[derive(Clone, Copy)]
pub(super) enum OfThread {
    State(calls::Span),
    Edge(Edge),
    /// Time since the job's first moment, and the fragment.
    Fragment(u64, Fragment),
}

impl OfThread {
    fn time(&self) -> u64 {
        match self {
            OfThread::State(span) => span.begin,
            OfThread::Edge(edge) => edge.time,
            OfThread::Fragment(time, _) => *time,
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
        let first = walk::first(job);
        let fragments = job.fragments.iter().map(|of| OfThread::Fragment(walk::since(first, of.time), *of));
        let mut all: Vec<OfThread> = spans.chain(edges).chain(fragments).collect();
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
