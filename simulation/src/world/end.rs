// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a program: receives what no receive got, and checks that every message is right, every request has ended,
//! and all that was taken is given back. Grade: test. Threads: one.

use super::operations::wanted;
use super::{Receive, World, content};
use crate::model::{Got, Matches, Sent, Wish};
use crate::process::{Process, laid_out};

impl World {
    /// Receives every message, and checks that nothing is left.
    pub(super) fn end(&mut self) {
        self.now += 1;
        for at in 0..self.processes.len() {
            for rail in 0..self.program.rails {
                let place = self.place(at as u32, rail);
                self.memory.refuse(place, false);
                self.fabric.set_link(place, true);
            }
        }
        for at in 0..self.processes.len() {
            if self.program.rails > 1 {
                self.notice(at);
            }
            while !self.probed[at].is_empty() {
                self.receive_probed(at as u32, None);
            }
            self.look(at);
        }
        self.settle();
        if self.is_over() {
            return;
        }
        self.receive_rest();
        self.settle();
        if !self.is_over() {
            self.check();
        }
    }

    /// Notes what receives have matched that have not ended, once a process has died: they may never end.
    pub(super) fn note_matched(&mut self) {
        if self.model.gone.is_empty() {
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

    /// Whether a receive has a message of a process that has died, or has died itself.
    fn is_of_the_gone(&self, wish: usize) -> bool {
        let Wish { at, got, .. } = self.model.wishes[wish];
        self.is_gone(at) || matches!(got, Got::Message { source, .. } if self.is_gone(source))
    }

    /// Cancels every receive that waits, and posts one for each message that no receive got.
    fn receive_rest(&mut self) {
        self.note_matched();
        let Matches { takers, .. } = self.model.matches();
        let open = self.receives.iter().filter(|(_, receive)| receive.bytes.is_none());
        for (wish, at, handle) in open.map(|(wish, receive)| (*wish, receive.at, receive.handle)).collect::<Vec<_>>() {
            if self.is_gone(at as usize) {
                continue;
            }
            let is_cancelled = self.process(at).cancel(handle);
            assert!(is_cancelled || self.is_of_the_gone(wish), "receive {wish} has a message, and does not end");
            self.look(at as usize);
        }
        for message in (0..takers.len()).filter(|message| takers[*message].is_none()) {
            let Sent { from, to, comm, tag, length, .. } = self.model.sent[message];
            if self.is_gone(from) || self.is_gone(to) {
                continue;
            }
            let wanted = wanted(comm as u32, Some(from as u32), Some(tag));
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
            let is_excused = self.is_gone(sent.from) || self.is_gone(sent.to);
            assert!(taker.is_some() || is_excused, "message {message} is lost: {sent:?}");
        }
        self.check_sends();
        for (wish, Receive { at, handle, room, gaps, bytes }) in &self.receives {
            let Some(bytes) = bytes else {
                if self.is_of_the_gone(*wish) {
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

    /// Checks that each send has ended, or its process has lost the receiver.
    fn check_sends(&mut self) {
        for (message, (at, send)) in &self.sends {
            let is_to_the_gone = self.processes[self.model.sent[*message].to].is_none();
            let Some(process) = &mut self.processes[*at as usize] else { continue };
            if !(is_to_the_gone && process.has_failed) {
                let what = process.describe_request(*send);
                panic!("send {message} of process {at} does not end: {what}");
            }
        }
    }

    /// Checks that all that was taken is given back.
    fn check_rest(&mut self) {
        self.processes.iter_mut().flatten().for_each(Process::reclaim);
        self.settle();
        let is_whole = self.model.gone.is_empty();
        for (at, process) in self.processes.iter_mut().enumerate() {
            let Some(process) = process else { continue };
            assert!(!(is_whole && process.has_failed), "process {at} has lost a peer");
            if let Some(left) = process.left().filter(|_| is_whole) {
                panic!("process {at} does not give back: {left}");
            }
        }
        assert!(!is_whole || self.memory.registered() == 0, "registrations are left");
        self.processes.iter().flatten().for_each(Process::end_recording);
    }
}
