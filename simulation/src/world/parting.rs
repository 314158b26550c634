// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that part, and meet again. Before they part, all messages between them are received. Grade: test. Threads:
//! one. Tests: those of the crate.

use std::time::Duration;

use super::{World, sorted};
use crate::model::Matches;
use crate::process::Wanted;
use crate::program::Program;

/// Time after which a process asks whether a peer lives from which it has parted.
const ASKED: Duration = Duration::from_secs(2);

impl World {
    /// Parts two processes. `fails`: the first request by which `at` then asks whether the other one lives fails.
    pub(super) fn part(&mut self, at: u32, other: u32, fails: bool) {
        let may_fail = self.has_failed || self.failing.is_some() || !self.fabric.is_up();
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
        if !self.is_whole() || self.parted.contains_key(&sorted(at, other)) {
            return;
        }
        self.process(at).part(other);
        self.process(other).part(at);
        // With several ports a link may be down when they meet, so that the other one cannot ask.
        if fails && self.program.rails == 1 {
            self.ask(at);
            let mut queue_pairs = self.process(at).queue_pairs(other).into_iter();
            self.has_failed = queue_pairs.any(|queue_pair| self.fabric.fail(queue_pair, false));
            self.poll(at as usize);
        }
        self.parted.insert(sorted(at, other), self.has_failed.then_some(other));
    }

    /// Lets a process ask whether peers live from which it has parted.
    fn ask(&mut self, at: u32) {
        self.fabric.pass(ASKED);
        self.notice(at as usize);
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

    /// Has all processes that have parted use their connections again.
    pub(super) fn meet_all(&mut self) {
        while let Some((&[one, other], _)) = self.parted.first_key_value() {
            self.meet(one, other);
        }
    }

    /// Has two processes that have parted use their connection again, before `from` sends to `to`. If one of them has
    /// destroyed its end and the other does not know, a message by the old connection would be lost. So first the one
    /// that does not know probes the connection; if that is `to`, and nothing fails, `from` makes a new one instead.
    pub(super) fn meet(&mut self, from: u32, to: u32) {
        let Some(unaware) = self.parted.remove(&sorted(from, to)) else { return };
        // With faults, the other one may not be the first.
        let &Program { hello_faults, post_faults, .. } = &self.program;
        let connects = unaware == Some(to) && hello_faults + post_faults == 0;
        if let Some(unaware) = unaware.filter(|unaware| !connects && self.processes[*unaware as usize].is_some()) {
            self.ask(unaware);
            self.settle();
        }
        for (one, other) in [(from, to), (to, from)] {
            if let Some(process) = &mut self.processes[one as usize] {
                process.meet(other);
            }
        }
        if connects && let Some(process) = &mut self.processes[from as usize] {
            process.connect(to);
            self.settle();
        }
    }
}
