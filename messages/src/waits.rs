// SPDX-License-Identifier: MIT OR Apache-2.0
//! What messages waited for, and processes: who was late, connections, and room in queues.
//!
//! Path: setup. Threads: plain data. Tests: below.

use std::collections::{HashMap, VecDeque};

use crate::model::{IncidentKind, Job, Message, Protocol, Wait, WaitKind};
use crate::time::Time;

/// A wait of a process for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessWait {
    /// Who waited.
    pub rank: u32,
    /// To whom it had something to send.
    pub peer: u32,
    /// For what, and when.
    pub wait: Wait,
}

impl Job {
    /// Waits for connections and for room in queues, by their begins. Of several requests that wait for a peer the first
    /// goes first.
    #[must_use]
    pub fn process_waits(&self) -> Vec<ProcessWait> {
        let connected = self.connections.iter().filter_map(|of| {
            let (from, to) = (of.begun?, of.established.or(of.failed)?);
            Some(ProcessWait { rank: of.rank, peer: of.peer, wait: Wait { kind: WaitKind::Connection, from, to } })
        });
        let mut waits: Vec<ProcessWait> = connected.collect();
        let mut queues: HashMap<(u32, u32), VecDeque<_>> = HashMap::new();
        for of in &self.incidents {
            let Some(peer) = of.peer else { continue };
            match of.kind {
                IncidentKind::QueuedBegin => queues.entry((of.rank, peer)).or_default().push_back(of.time),
                IncidentKind::QueuedEnd => {
                    if let Some(from) = queues.get_mut(&(of.rank, peer)).and_then(VecDeque::pop_front) {
                        let wait = Wait { kind: WaitKind::Queue, from, to: of.time };
                        waits.push(ProcessWait { rank: of.rank, peer, wait });
                    }
                }
                _ => {}
            }
        }
        waits.sort_by_key(|of| of.wait.from);
        waits
    }
}

impl Message {
    /// What it waited for that its own moments tell. Who is late is told by when the message left, on the clock of its sender,
    /// and when its receive was called: a process that computes does not see what comes meanwhile. So a wait that is shorter
    /// than the error of the two clocks may be the other's.
    pub fn waits(&self) -> impl Iterator<Item = Wait> + '_ {
        let of = |kind, from: Option<Time>, to: Option<Time>| Some(Wait { kind, from: from?, to: to? });
        let between = self.receive.as_ref().and_then(|side| {
            let called = side.activated.or(side.posted);
            let left = self.left().filter(|left| called.is_some_and(|called| *left < called));
            match left.into_iter().chain(side.unexpected).min() {
                Some(came) => of(WaitKind::LateReceiver, Some(came), side.matched.or(called)),
                None => of(WaitKind::LateSender, side.posted, side.matched),
            }
        });
        let received = self.receive.and_then(|side| of(WaitKind::LateWait, side.completed, side.notified));
        let sent = self.send.and_then(|side| of(WaitKind::LateWait, side.completed, side.notified));
        [between, received, sent].into_iter().flatten()
    }

    /// When it left its sender, or its announcement did, as far as that is known.
    fn left(&self) -> Option<Time> {
        let send = self.send.as_ref()?;
        match self.protocol {
            // Its bytes go when its announcement has been answered.
            Some(Protocol::Pieces | Protocol::Written | Protocol::Oneself) => send.activated,
            _ => send.begun,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Connection, Incident};

    /// A message that left at 100 and came at 200, seen by a receiver who asked for it at `called`.
    fn received(called: i64, is_expected: bool) -> Message {
        let mut message = Job::made(2, 1, 1).messages.remove(0);
        let (send, receive) = (message.send.as_mut().unwrap(), message.receive.as_mut().unwrap());
        message.protocol = Some(Protocol::Inline);
        send.begun = Some(Time::new(100));
        receive.activated = Some(Time::new(called));
        receive.posted = is_expected.then(|| Time::new(called + 1));
        receive.unexpected = (!is_expected).then(|| Time::new(200));
        receive.matched = Some(Time::new(200.max(called) + 5));
        message
    }

    fn between(message: &Message) -> (WaitKind, i64) {
        let wait = message.waits().next().expect("one waits for the other");
        (wait.kind, wait.to.since(wait.from))
    }

    #[test]
    fn who_calls_before_the_message_has_left_waits_for_its_sender() {
        assert_eq!(between(&received(50, true)), (WaitKind::LateSender, 154));
    }

    #[test]
    fn a_message_waits_for_a_receiver_who_looks_late_whether_or_not_he_has_posted_before_he_looked() {
        assert_eq!(between(&received(900, false)), (WaitKind::LateReceiver, 805));
        assert_eq!(between(&received(900, true)), (WaitKind::LateReceiver, 805));
    }

    #[test]
    fn a_long_message_leaves_when_it_is_announced() {
        let mut message = received(900, true);
        message.protocol = Some(Protocol::Pieces);
        let send = message.send.as_mut().unwrap();
        (send.activated, send.begun) = (Some(Time::new(80)), Some(Time::new(950)));
        assert_eq!(between(&message), (WaitKind::LateReceiver, 825));
    }

    #[test]
    fn of_a_message_whose_sender_was_not_recorded_the_receiver_says_who_was_late() {
        let mut message = received(900, true);
        message.send = None;
        assert_eq!(between(&message), (WaitKind::LateSender, 4));
    }

    #[test]
    fn the_first_that_is_queued_is_the_first_that_goes() {
        let of = |time, kind, peer| {
            let (time, peer) = (Time::new(time), Some(peer));
            Incident { rank: 0, time, kind, peer, port: None, value: 1 }
        };
        let (begin, end) = (IncidentKind::QueuedBegin, IncidentKind::QueuedEnd);
        let incidents = vec![of(10, begin, 1), of(20, begin, 1), of(25, end, 2), of(30, end, 1), of(90, end, 1)];
        let connection = Connection {
            rank: 0,
            peer: 1,
            port: None,
            queue_pair: 1,
            remote_queue_pair: 2,
            begun: Some(Time::new(5)),
            established: Some(Time::new(9)),
            failed: None,
            status: 0,
        };
        let job = Job { incidents, connections: vec![connection], ..Job::default() };
        let took = |of: &ProcessWait| (of.wait.kind, of.wait.to.since(of.wait.from));
        let found: Vec<_> = job.process_waits().iter().map(took).collect();
        assert_eq!(found, [(WaitKind::Connection, 4), (WaitKind::Queue, 20), (WaitKind::Queue, 70)]);
    }
}
