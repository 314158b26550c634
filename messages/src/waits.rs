// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits of no single message: for connections, and for room in queues. Path: setup. Threads: plain data. Tests: below.

use std::collections::{HashMap, VecDeque};

use crate::model::{IncidentKind, Job, Wait, WaitKind};

/// A wait of a process for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessWait {
    /// The waiting process.
    pub rank: u32,
    /// The peer of the request that waits.
    pub peer: u32,
    /// Reason and time.
    pub wait: Wait,
}

impl Job {
    /// Returns waits for connections and for room in queues, by their begins. Requests to one peer leave in order.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Connection, Incident};
    use crate::time::Time;

    #[test]
    fn the_request_that_is_queued_first_leaves_first() {
        let of = |time, kind, peer| {
            let (time, peer) = (Time::new(time), Some(peer));
            Incident { rank: 0, time, kind, peer, port: None, value: 1 }
        };
        let (begin, end) = (IncidentKind::QueuedBegin, IncidentKind::QueuedEnd);
        let incidents = vec![of(10, begin, 1), of(20, begin, 1), of(25, end, 2), of(30, end, 1), of(90, end, 1)];
        let times = [5, 9].map(|time| Some(Time::new(time)));
        let connection = Connection { peer: 1, begun: times[0], established: times[1], ..Connection::default() };
        let job = Job { incidents, connections: vec![connection], ..Job::default() };
        let took = |of: &ProcessWait| (of.wait.kind, of.wait.to.since(of.wait.from));
        let found: Vec<_> = job.process_waits().iter().map(took).collect();
        assert_eq!(found, [(WaitKind::Connection, 4), (WaitKind::Queue, 20), (WaitKind::Queue, 70)]);
    }
}
