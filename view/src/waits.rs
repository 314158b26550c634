// SPDX-License-Identifier: MIT OR Apache-2.0
//! The longest wait for each message, as `ibex explain --waits` counts waits: late senders, late receivers and late
//! waits from MPI calls, the others from the sender's connections and queues. A late wait counts only if no process
//! waited. Called by `columns.rs`. Tests: below.

use ibex_messages::{Job, Message, Time, Wait, WaitKind};
use std::collections::HashMap;

pub(crate) struct Waits {
    /// Longest wait in MPI calls of each message, by its index.
    in_calls: HashMap<usize, Wait>,
    /// Waits for connections and queues, by rank, peer and kind, ordered by their begins.
    of_pairs: HashMap<(u32, u32, WaitKind), Vec<Wait>>,
}

impl Waits {
    pub(crate) fn of(job: &Job) -> Waits {
        let mut of_pairs: HashMap<_, Vec<Wait>> = HashMap::new();
        for of in job.process_waits() {
            of_pairs.entry((of.rank, of.peer, of.wait.kind)).or_default().push(of.wait);
        }
        let mut in_calls: HashMap<usize, Wait> = HashMap::new();
        for (place, wait) in job.message_waits() {
            let longest = in_calls.entry(place).or_insert(wait);
            *longest = [*longest, wait].into_iter().max_by_key(weight).unwrap_or(wait);
        }
        Waits { in_calls, of_pairs }
    }

    pub(crate) fn longest(&self, place: usize, message: &Message) -> Option<Wait> {
        let sending = message.send.and_then(|side| side.activated.zip(side.left().or(side.ended)));
        let within = |kind| {
            let (from, to) = sending?;
            overlap(self.of_pairs.get(&(message.sender, message.receiver, kind))?, from, to)
        };
        let of_pair = [WaitKind::Connection, WaitKind::Queue].into_iter().filter_map(within);
        let all = self.in_calls.get(&place).copied().into_iter().chain(of_pair);
        all.filter(|wait| wait.from < wait.to).max_by_key(weight)
    }
}

/// A wait of a process counts before a late wait, and then the longer one.
fn weight(wait: &Wait) -> (bool, i64) {
    (wait.kind != WaitKind::LateWait, wait.to.since(wait.from))
}

/// Returns the longest part, within a span of time, of waits in order. Requests are sent in order, so a message sent in
/// the span has the last wait that began before the span, or one of the first that begin in it.
fn overlap(waits: &[Wait], from: Time, to: Time) -> Option<Wait> {
    let first = waits.partition_point(|wait| wait.from < from).saturating_sub(1);
    let parts =
        waits[first..].iter().take(8).map(|wait| Wait { from: wait.from.max(from), to: wait.to.min(to), ..*wait });
    parts.filter(|part| part.from < part.to).max_by_key(|part| part.to.since(part.from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibex_messages::{Connection, Incident, IncidentKind};

    fn job() -> Job {
        let mut job = Job::synthetic(2, 1, 3);
        let message = &mut job.messages[0];
        message.receive = None;
        let send = message.send.as_mut().unwrap();
        (send.activated, send.announced, send.begun) = (Some(Time::new(1000)), None, Some(Time::new(9000)));
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
        let (begun, established) = (Some(Time::new(1100)), Some(Time::new(8000)));
        job.connections.push(Connection { rank, peer, begun, established, ..Connection::default() });
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
        // The first request was queued before the message; the second is the message's own.
        let wait = Wait { kind: WaitKind::Queue, from: Time::new(2000), to: Time::new(8500) };
        assert_eq!(Waits::of(&job).longest(0, &job.messages[0]), Some(wait));
    }
}
