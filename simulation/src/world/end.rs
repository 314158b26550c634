// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a program: receives what no receive got, and checks that every message is right, every request has ended,
//! and all that was taken is given back. Grade: test. Threads: one.

use std::collections::BTreeMap;

use super::{Receive, World, content};
use crate::model::{Got, Matches, Sent, Wish};
use crate::process::{Process, Wanted, laid_out};
use crate::schedule::Scheduled as _;

impl World {
    /// Receives every message, and checks that nothing is left.
    pub(super) fn end(&mut self) {
        self.now += 1;
        self.schedule.failing = None;
        for at in 0..self.processes.len() {
            for rail in 0..self.program.rails {
                let place = self.place(at as u32, rail);
                self.memory.refuse(place, false);
                self.schedule.fabric.refuse_slots(place, false);
                self.schedule.fabric.set_link(place, true);
            }
        }
        for at in 0..self.processes.len() {
            if self.program.rails > 1 {
                self.notice(at);
            }
            while !self.probed[at].is_empty() {
                self.receive_probed(at as u32, None);
            }
            self.free_persistent_of(at, None);
            self.look(at);
        }
        self.settle();
        self.receive_rest(None);
        self.settle();
        self.check();
    }

    /// Notes what receives have matched that have not ended, once a process has died: they may never end.
    pub(super) fn note_matched(&mut self) {
        if self.is_whole() {
            return;
        }
        for (wish, Receive { at, handle, bytes, .. }) in &self.receives {
            if let Some(process) = &mut self.processes[*at as usize]
                && bytes.is_none()
                && let Some(outcome) = process.matched(*handle)
            {
                let (source, tag, length) = (outcome.source as usize, outcome.tag, outcome.length);
                self.model.wishes[*wish].got = Got::Message { source, tag, length };
            }
        }
    }

    /// Whether a receive may wait for ever: its process has died, or its process ends with its peers and the sender, of
    /// the message that it got or that it names, has died or is lost.
    fn may_wait(&self, wish: usize) -> bool {
        let Wish { at, got, from, .. } = self.model.wishes[wish];
        let sender = if let Got::Message { source, .. } = got { Some(source) } else { from };
        self.is_gone(at) || !self.program.outlives && sender.is_some_and(|sender| self.model.may_lose(sender, at))
    }

    /// Cancels every receive that waits, and posts one for each message that no receive got; for those of a
    /// communicator only as far as their sends need them, and the others will be dropped.
    pub(super) fn receive_rest(&mut self, of: Option<usize>) {
        self.note_matched();
        let Matches { takers, .. } = self.model.matches();
        let is_meant = |comm: usize| of.is_none_or(|of| of == comm);
        let open = self.receives.iter().filter(|(_, receive)| receive.bytes.is_none());
        let open = open.filter(|(wish, _)| is_meant(self.model.wishes[**wish].comm));
        for (wish, at, handle) in open.map(|(wish, receive)| (*wish, receive.at, receive.handle)).collect::<Vec<_>>() {
            if self.is_gone(at as usize) {
                continue;
            }
            let from = self.model.wishes[wish].from;
            let may_wait = from.is_none_or(|from| !self.outlived.contains_key(&(at as usize, from)));
            assert!(may_wait, "receive {wish} of process {at} waits for process {from:?}, which is lost");
            let is_cancelled = self.process(at).cancel(handle);
            assert!(is_cancelled || self.may_wait(wish), "receive {wish} has a message, and does not end");
            self.look(at as usize);
        }
        // The last message of each envelope that is to be received.
        let mut last = BTreeMap::new();
        let envelope = |sent: &Sent| (sent.from, sent.to, sent.comm, sent.tag);
        for message in self.sends.keys().copied().chain((0..takers.len()).filter(|_| of.is_none())) {
            last.insert(envelope(&self.model.sent[message]), message);
        }
        for message in (0..takers.len()).filter(|message| takers[*message].is_none()) {
            let sent = &self.model.sent[message];
            let (from, to, comm, tag, length) = (sent.from, sent.to, sent.comm, sent.tag, sent.length);
            if !is_meant(comm) || self.model.may_lose(from, to) || self.communicators.dropped.contains(&message) {
                continue;
            }
            if last.get(&envelope(sent)).is_none_or(|last| *last < message) {
                self.communicators.dropped.insert(message);
                continue;
            }
            let context = self.communicators.numbers[comm];
            let wanted = Wanted { context, source: from as i32, tag };
            self.receive(to as u32, wanted, (length, false));
            self.look(to);
        }
    }

    fn is_gone(&self, at: usize) -> bool {
        self.processes[at].is_none()
    }

    fn check(&mut self) {
        self.note_matched();
        let Matches { of_wishes, takers } = self.model.matches();
        for (message, taker) in takers.iter().enumerate() {
            let sent = &self.model.sent[message];
            let is_excused = self.model.may_lose(sent.from, sent.to) || self.communicators.dropped.contains(&message);
            assert!(taker.is_some() || is_excused, "message {message} is lost: {sent:?}");
            if let (Some(begun), Some(taker)) = (self.ready.get(&message), taker) {
                let Wish { made, .. } = self.model.wishes[*taker];
                assert!(made <= *begun, "ready message {message} found receive {taker}, which was posted later");
            }
        }
        self.check_sends();
        self.check_paths(&takers);
        for (wish, Receive { at, handle, room, gaps, bytes, has_failed }) in &self.receives {
            if *has_failed {
                continue;
            }
            let Some(bytes) = bytes else {
                if self.may_wait(*wish) {
                    continue;
                }
                let what = self.processes[*at as usize].as_mut().map(|process| process.describe_request(*handle));
                panic!("receive {wish} of process {at} does not end: {what:?}");
            };
            let sent = of_wishes[*wish].map(|message| content(message, self.model.sent[message].length));
            let sent = sent.unwrap_or_default();
            let expected = laid_out(&sent[..sent.len().min(*room)], *room, *gaps);
            let differs = expected.iter().zip(bytes).position(|(expected, got)| expected != got);
            assert!(
                **bytes == *expected,
                "receive {wish}, of message {:?}, has wrong bytes, the first at {differs:?} of {}",
                of_wishes[*wish],
                expected.len()
            );
        }
        self.check_rest();
    }

    /// Checks that each send has ended, or its process has lost the receiver, and does not outlive it.
    fn check_sends(&mut self) {
        for (message, (at, send)) in &self.sends {
            let is_lost = self.model.may_lose(self.model.sent[*message].from, self.model.sent[*message].to);
            let may_be_lost = is_lost && !self.program.outlives;
            let Some(process) = &mut self.processes[*at as usize] else { continue };
            if !may_be_lost {
                let what = process.describe_request(*send);
                panic!("send {message} of process {at} does not end: {what}");
            }
        }
    }

    /// Checks that all that was taken is given back.
    fn check_rest(&mut self) {
        self.meet_all();
        self.processes.iter_mut().flatten().for_each(Process::reclaim);
        self.settle();
        let is_whole = self.is_whole();
        for (at, process) in self.processes.iter().enumerate() {
            let Some(process) = process else { continue };
            assert!(!(is_whole && process.has_failed), "process {at} has lost a peer");
            let sends = self.sends.values().filter(|(from, _)| *from as usize == at).count();
            let receives =
                self.receives.values().filter(|receive| receive.at as usize == at && receive.bytes.is_none());
            // A port that refuses a request does not say which messages before it have arrived.
            let may_keep = process.has_failed && self.is_broken && !self.program.outlives;
            let left = process.left_of_all(sends + receives.count()).filter(|_| !may_keep);
            if let Some(left) = left.or_else(|| process.left().filter(|_| is_whole)) {
                panic!("process {at} does not give back: {left}");
            }
        }
        let may_register = if self.program.outlives { !self.model.gone.is_empty() } else { !is_whole };
        assert!(may_register || self.memory.registered() == 0, "registrations are left");
        for process in self.processes.iter_mut().flatten() {
            process.check_given_up();
            (0..self.program.processes).for_each(|other| process.forget(other));
        }
        self.add_communicators();
        self.processes.iter().flatten().for_each(Process::end_recording);
    }
}
