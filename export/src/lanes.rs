// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lanes: formats draw overlapping items one above the other. A thread has several messages at once, and no format lets
//! their phases overlap on one line. So each thread has lanes for its sends, receives and one-sided operations, and
//! each rank for its connections; an item takes the first free lane. Excess items are not drawn, but counted. Called by
//! `walk.rs`. Path: each begin and end of an item. Threads: one. Tests: there.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use ibex_messages::Job;

use crate::life::Item;
use crate::threads::Threads;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Use {
    Sends,
    Receives,
    Operations,
    Connections,
}

impl Use {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Use::Sends => "sends",
            Use::Receives => "receives",
            Use::Operations => "one-sided",
            Use::Connections => "connections",
        }
    }
}

/// A line on which one item is drawn at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lane {
    /// Index in [`Threads`].
    pub(crate) thread: u32,
    pub(crate) used_for: Use,
    /// Number among the lanes of the thread and use, from 0.
    pub(crate) number: u32,
}

pub(crate) struct Lanes {
    most: u32,
    all: Vec<Lane>,
    of: HashMap<(u32, Use), Group>,
    refused: u64,
}

#[derive(Default)]
struct Group {
    count: u32,
    free: BinaryHeap<Reverse<u32>>,
}

impl Lanes {
    /// `most`: most lanes for each thread and use.
    pub(crate) fn new(most: u32) -> Lanes {
        Lanes { most, all: Vec::new(), of: HashMap::new(), refused: 0 }
    }

    pub(crate) fn all(&self) -> &[Lane] {
        &self.all
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// Takes a lane for an item that begins.
    pub(crate) fn take(&mut self, job: &Job, threads: &Threads, item: Item) -> Option<u32> {
        let thread = threads.of_item(job, item);
        let used_for = match item {
            Item::Send(_) => Use::Sends,
            Item::Receive(_) => Use::Receives,
            Item::Operation(_) => Use::Operations,
            Item::Connection(_) => Use::Connections,
            Item::Incident(_) => return None,
        };
        let group = self.of.entry((thread, used_for)).or_default();
        if let Some(Reverse(lane)) = group.free.pop() {
            return Some(lane);
        }
        if group.count == self.most {
            self.refused += 1;
            return None;
        }
        self.all.push(Lane { thread, used_for, number: group.count });
        group.count += 1;
        Some(self.all.len() as u32 - 1)
    }

    pub(crate) fn give_back(&mut self, lane: u32) {
        let Lane { thread, used_for, .. } = self.all[lane as usize];
        self.of.entry((thread, used_for)).or_default().free.push(Reverse(lane));
    }
}
