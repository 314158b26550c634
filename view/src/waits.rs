// SPDX-License-Identifier: MIT OR Apache-2.0
//! The longest wait for each message: late senders and receivers and late waits from MPI calls, the rest from the sender's
//! connections and queues. A late wait counts only where no process waited.
//!
//! Called by `columns.rs`. Tests: below.

use ibex_messages::{IncidentKind, Job, Message, Time, Wait, WaitKind};
use std::collections::HashMap;

/// A stretch of time.
type Stretch = (Time, Time);

/// All waits of a job.
pub(crate) struct Waits {
    /// The longest wait of each message in MPI calls, by its index.
    in_calls: HashMap<usize, Wait>,
    /// Stretches by rank and peer, ordered by their begins.
    connecting: HashMap<(u32, u32), Vec<Stretch>>,
    queued: HashMap<(u32, u32), Vec<Stretch>>,
}

impl Waits {
    pub(crate) fn of(job: &Job) -> Waits {
        let mut connecting: HashMap<(u32, u32), Vec<Stretch>> = HashMap::new();
        for connection in &job.connections {
            if let Some(stretch) = connection.begun.zip(connection.established.or(connection.failed)) {
                connecting.entry((connection.rank, connection.peer)).or_default().push(stretch);
            }
        }
        for stretches in connecting.values_mut() {
            stretches.sort_unstable();
        }
        let mut in_calls: HashMap<usize, Wait> = HashMap::new();
        for (place, wait) in job.message_waits() {
            let longest = in_calls.entry(place).or_insert(wait);
            *longest = [*longest, wait].into_iter().max_by_key(weight).unwrap_or(wait);
        }
        Waits { in_calls, connecting, queued: queued(job) }
    }

    /// The longest wait for the message at this index, if any.
    pub(crate) fn longest(&self, place: usize, message: &Message) -> Option<Wait> {
        let pair = (message.sender, message.receiver);
        let sending = message.send.and_then(|side| side.activated.zip(side.begun.or(side.ended)));
        let within = |stretches: &HashMap<_, Vec<Stretch>>, kind| {
            let (from, to) = sending?;
            overlap(stretches.get(&pair)?, from, to).map(|(from, to)| Wait { kind, from, to })
        };
        let connection = within(&self.connecting, WaitKind::Connection);
        let queue = within(&self.queued, WaitKind::Queue);
        let all = self.in_calls.get(&place).copied().into_iter().chain(connection).chain(queue);
        all.filter(|wait| wait.from < wait.to).max_by_key(weight)
    }
}

/// A wait of a process counts before a late wait, and then the longer one.
fn weight(wait: &Wait) -> (bool, i64) {
    (wait.kind != WaitKind::LateWait, wait.to.since(wait.from))
}

/// Stretches in which requests wait, by rank and peer.
fn queued(job: &Job) -> HashMap<(u32, u32), Vec<Stretch>> {
    let mut stretches: HashMap<_, Vec<Stretch>> = HashMap::new();
    let mut open = HashMap::new();
    for incident in &job.incidents {
        let Some(peer) = incident.peer else { continue };
        let pair = (incident.rank, peer);
        match incident.kind {
            IncidentKind::QueuedBegin => {
                open.entry(pair).or_insert(incident.time);
            }
            IncidentKind::QueuedEnd if incident.value == 0 => {
                let stretch = open.remove(&pair).map(|begun| (begun, incident.time));
                stretches.entry(pair).or_default().extend(stretch);
            }
            _ => {}
        }
    }
    stretches
}

/// The longest overlap of the stretches, which are in order, with a span.
fn overlap(stretches: &[Stretch], from: Time, to: Time) -> Option<Stretch> {
    let end = stretches.partition_point(|stretch| stretch.0 < to);
    let parts = stretches[..end].iter().rev().take(8).map(|stretch| (stretch.0.max(from), stretch.1.min(to)));
    parts.filter(|part| part.0 < part.1).max_by_key(|part| part.1.since(part.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibex_messages::{Connection, Incident};

    fn job() -> Job {
        let mut job = Job::synthetic(2, 1, 3);
        let message = &mut job.messages[0];
        message.receive = None;
        let send = message.send.as_mut().unwrap();
        (send.activated, send.begun) = (Some(Time::new(1000)), Some(Time::new(9000)));
        send.notified = send.completed;
        job
    }

    #[test]
    fn the_longest_wait_in_mpi_calls_counts() {
        let job = Job::synthetic(4, 500, 3);
        let waits = Waits::of(&job);
        let mut longest = vec![None; job.messages.len()];
        for (place, wait) in job.message_waits() {
            longest[place] = longest[place].max(Some((wait.kind != WaitKind::LateWait, wait.to.since(wait.from))));
        }
        let found = |(place, message)| waits.longest(place, message).map(|wait| weight(&wait));
        let found = job.messages.iter().enumerate().map(found);
        assert!(found.eq(longest) && !job.message_waits().is_empty());
    }

    #[test]
    fn a_message_waits_for_the_connection_that_was_made_while_it_could_not_begin() {
        let mut job = job();
        let (rank, peer) = (job.messages[0].sender, job.messages[0].receiver);
        assert_eq!(Waits::of(&job).longest(0, &job.messages[0]), None);
        job.connections.push(Connection {
            rank,
            peer,
            port: None,
            queue_pair: 1,
            remote_queue_pair: 2,
            begun: Some(Time::new(1100)),
            established: Some(Time::new(8000)),
            failed: None,
            status: 0,
        });
        let wait = Wait { kind: WaitKind::Connection, from: Time::new(1100), to: Time::new(8000) };
        assert_eq!(Waits::of(&job).longest(0, &job.messages[0]), Some(wait));
    }

    #[test]
    fn a_message_waits_for_the_queue_that_was_full_in_front_of_it() {
        let mut job = job();
        let (rank, peer) = (job.messages[0].sender, Some(job.messages[0].receiver));
        let incident = |time, kind, value| Incident { rank, time: Time::new(time), kind, peer, port: None, value };
        job.incidents = vec![
            incident(500, IncidentKind::QueuedBegin, 1),
            incident(2000, IncidentKind::QueuedBegin, 2),
            incident(6000, IncidentKind::QueuedEnd, 1),
            incident(8500, IncidentKind::QueuedEnd, 0),
        ];
        let wait = Wait { kind: WaitKind::Queue, from: Time::new(1000), to: Time::new(8500) };
        assert_eq!(Waits::of(&job).longest(0, &job.messages[0]), Some(wait));
    }
}
