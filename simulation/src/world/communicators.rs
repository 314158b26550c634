// SPDX-License-Identifier: MIT OR Apache-2.0
//! The communicators of a program, and how all processes free one and make another in its place. The new one gets a
//! number that no process uses any more, maybe that of the old one, and each process adds it when it first uses it.
//! Grade: test. Threads: one. Tests: those of the crate.

use std::collections::{BTreeMap, BTreeSet};

use super::World;
use crate::history::Step;
use crate::process::Wanted;
use crate::schedule::Scheduled as _;

/// Most communicators at a time.
const MOST: u32 = 1 << 16;

#[derive(Default)]
pub(crate) struct Communicators {
    /// The present communicator of each context of the program.
    now: BTreeMap<u32, usize>,
    /// Context number of each communicator, those that were freed included.
    pub(crate) numbers: Vec<u32>,
    /// Messages that no process has received when their communicator was freed.
    pub(crate) dropped: BTreeSet<usize>,
}

impl Communicators {
    /// Whether a communicator is not freed.
    pub(super) fn is_present(&self, id: usize) -> bool {
        self.now.values().any(|known| *known == id)
    }

    /// Returns the last communicator with this number.
    pub(super) fn with_number(&self, number: u32) -> usize {
        self.numbers.iter().rposition(|known| *known == number).expect("a number of a communicator")
    }
}

impl World {
    /// Returns the present communicator of a context of the program, and its number.
    pub(super) fn communicator(&mut self, context: u32) -> (usize, u32) {
        if let Some(known) = self.communicators.now.get(&context) {
            return (*known, self.communicators.numbers[*known]);
        }
        let is_free = |number: &u32| {
            let is_used = self.communicators.now.values().any(|known| self.communicators.numbers[*known] == *number);
            !is_used && self.processes.iter().flatten().all(|process| !process.has_context(*number))
        };
        let number = [context].into_iter().chain(0..MOST).find(is_free).expect("numbers are free");
        let id = self.communicators.numbers.len();
        self.communicators.numbers.push(number);
        self.communicators.now.insert(context, id);
        self.schedule.history.note(Step::Communicator { context, number });
        (id, number)
    }

    pub(super) fn wanted(&mut self, context: u32, from: Option<u32>, tag: Option<i32>) -> Wanted {
        let (_, context) = self.communicator(context);
        Wanted::new(context, from, tag)
    }

    /// Lets each process add the present communicators that it has not used, so that all traces have the same ones.
    pub(super) fn add_communicators(&mut self) {
        for id in self.communicators.now.values() {
            let number = self.communicators.numbers[*id];
            self.processes.iter_mut().flatten().for_each(|process| process.add_context(number));
        }
    }

    /// Frees a communicator in all processes. As MPI requires, each send in it can end: it has a receive. Requests may
    /// still be active, and messages whose sends have ended are dropped with it.
    pub(super) fn renew(&mut self, context: u32) {
        let Some(&id) = self.communicators.now.get(&context) else { return };
        // Messages wait for a link, or are lost.
        if !self.is_whole()
            || self.schedule.has_failed
            || self.schedule.failing.is_some()
            || !self.schedule.fabric.is_up()
        {
            return;
        }
        let number = self.communicators.numbers[id];
        for at in 0..self.processes.len() {
            let count = self.probed[at].len();
            for _ in 0..count {
                if self.probed[at].front().is_some_and(|probed| probed.wanted.context == number) {
                    self.receive_probed(at as u32, None);
                } else {
                    self.probed[at].rotate_left(1);
                }
            }
            self.free_persistent_of(at, Some(number));
            self.look(at);
        }
        self.settle();
        if !self.is_whole() {
            return;
        }
        self.receive_rest(Some(id));
        for at in 0..self.processes.len() {
            self.process(at as u32).free_context(number);
            self.look(at);
        }
        self.communicators.now.remove(&context);
    }
}
