// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that part, and meet again. Before they part, all messages between them are received. Grade: test. Threads:
//! one. Tests: those of the crate.

use std::time::Duration;

use super::{World, sorted};
use crate::model::Matches;
use crate::process::Wanted;
use crate::schedule::Scheduled as _;

/// Time after which a process asks whether a peer lives from which it has parted.
const ASKED: Duration = Duration::from_secs(2);

impl World {
    /// Parts two processes. `fails`: the first request by which `at` then asks whether the other one lives fails.
    pub(super) fn part(&mut self, at: u32, other: u32, fails: bool) {
        let may_fail = self.schedule.has_failed || self.schedule.failing.is_some() || !self.schedule.fabric.is_up();
        if at == other || may_fail || !self.is_whole() {
            return;
        }
        for one in [at, other] {
            while !self.probed[one as usize].is_empty() {
                self.receive_probed(one, None);
            }
            self.look(one as usize);
        }
        self.settle();
        self.receive_between(at, other);
        self.settle();
        if !self.is_whole() || self.parted.contains(&sorted(at, other)) {
            return;
        }
        self.process(at).part(other);
        self.process(other).part(at);
        if fails {
            self.schedule.fabric.pass(ASKED);
            self.notice(at as usize);
            self.schedule.has_failed =
                (0..self.schedule.fabric.queue_pairs()).any(|queue_pair| self.schedule.fabric.fail(queue_pair, false));
            self.poll(at as usize);
        }
        self.parted.insert(sorted(at, other));
    }

    /// Posts a receive for each message between two processes that no receive got.
    fn receive_between(&mut self, at: u32, other: u32) {
        let Matches { takers, .. } = self.model.matches();
        for message in (0..takers.len()).filter(|message| takers[*message].is_none()) {
            let sent = &self.model.sent[message];
            let (from, to, length) = (sent.from as u32, sent.to as u32, sent.length);
            if sorted(from, to) == sorted(at, other) && self.communicators.is_present(sent.comm) {
                let context = self.communicators.numbers[sent.comm];
                let wanted = Wanted { context, source: from as i32, tag: sent.tag };
                self.receive(to, wanted, (length, false));
                self.look(to as usize);
            }
        }
    }

    /// Lets all pairs of processes that have parted meet again.
    pub(super) fn meet_all(&mut self) {
        while let Some(&[one, other]) = self.parted.first() {
            self.meet(one, other);
        }
    }

    /// Lets two processes meet again if they have parted: they may use their connection.
    pub(super) fn meet(&mut self, one: u32, other: u32) {
        if !self.parted.remove(&sorted(one, other)) {
            return;
        }
        for (one, other) in [(one, other), (other, one)] {
            if let Some(process) = &mut self.processes[one as usize] {
                process.meet(other);
            }
        }
    }
}
