// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters along a walk: queue lengths and bytes in flight, for each rank and each port. An item counts between two
//! times; if only the first is known, it counts to the end. Called by the formats with each step. Path: each step.
//! Threads: one. Tests: below.

use arrayvec::ArrayVec;
use ibex_messages::{IncidentKind, Job, Message};

use crate::life::{Item, Moment, described, left};
use crate::walk::Step;

described! {
    Counter:
    SendsActive "sends active" "sends that have been called and are not complete"
    PostedReceives "posted receives" "the length of the posted receive queue"
    UnexpectedMessages "unexpected messages" "the length of the unexpected message queue"
    UnexpectedBytes "unexpected bytes" "the bytes of the messages in the unexpected message queue"
    BytesInFlight "bytes in flight" "the bytes of sends that have been announced or have begun, and have not ended"
    QueuedRequests "requests that wait for a queue" "requests that cannot be posted now"
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    Rank(u32),
    Port(u32),
}

impl Counter {
    /// Number of counters of ranks; the other counters are of ports.
    const OF_RANKS: usize = 4;
    pub(crate) const OF_PORTS: u32 = Counter::COUNT - Counter::OF_RANKS as u32;

    pub(crate) fn of_ranks() -> impl Iterator<Item = Counter> {
        Counter::ALL[..Counter::OF_RANKS].iter().copied()
    }

    pub(crate) fn of_ports() -> impl Iterator<Item = Counter> {
        Counter::ALL[Counter::OF_RANKS..].iter().copied()
    }

    pub(crate) fn is_bytes(self) -> bool {
        matches!(self, Counter::UnexpectedBytes | Counter::BytesInFlight)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) counter: Counter,
    pub(crate) owner: Owner,
    pub(crate) value: u64,
}

/// The changes of a step: at most the messages and the bytes of a queue.
pub(crate) type Changes = ArrayVec<Change, 2>;

pub(crate) struct Counters {
    ranks: Vec<[u64; Counter::ALL.len()]>,
    ports: Vec<[u64; Counter::ALL.len()]>,
}

impl Counters {
    pub(crate) fn of(job: &Job) -> Counters {
        Counters { ranks: vec![[0; _]; job.ranks.len()], ports: vec![[0; _]; job.ports.len()] }
    }

    pub(crate) fn step(&mut self, job: &Job, step: &Step) -> Changes {
        let mut changes = Changes::new();
        match step.item {
            Item::Send(place) => {
                let message = &job.messages[place as usize];
                let Some(side) = &message.send else { return changes };
                match step.moment {
                    Moment::Activated => changes.push(self.add(Counter::SendsActive, Owner::Rank(message.sender), 1)),
                    Moment::Completed if side.activated.is_some() => {
                        changes.push(self.add(Counter::SendsActive, Owner::Rank(message.sender), -1));
                    }
                    moment if Some(moment) == left(side) => {
                        changes.extend(message.port.map(|port| self.flight(port, bytes(message))));
                    }
                    Moment::Ended if left(side).is_some() => {
                        changes.extend(message.port.map(|port| self.flight(port, -bytes(message))));
                    }
                    _ => {}
                }
            }
            Item::Receive(place) => {
                let message = &job.messages[place as usize];
                let (Some(side), owner) = (&message.receive, Owner::Rank(message.receiver)) else { return changes };
                let (more, of_bytes) = match step.moment {
                    Moment::Unexpected => (1, bytes(message)),
                    Moment::Matched if side.unexpected.is_some() => (-1, -bytes(message)),
                    _ => (0, 0),
                };
                if more != 0 {
                    changes.push(self.add(Counter::UnexpectedMessages, owner, more));
                    changes.push(self.add(Counter::UnexpectedBytes, owner, of_bytes));
                }
                match step.moment {
                    Moment::Posted => changes.push(self.add(Counter::PostedReceives, owner, 1)),
                    Moment::Matched if side.posted.is_some() && side.unexpected.is_none() => {
                        changes.push(self.add(Counter::PostedReceives, owner, -1));
                    }
                    _ => {}
                }
            }
            Item::Incident(place) => {
                let incident = &job.incidents[place as usize];
                if let (IncidentKind::QueuedBegin | IncidentKind::QueuedEnd, Some(port)) =
                    (incident.kind, incident.port)
                {
                    self.ports[port as usize][Counter::QueuedRequests.number() as usize] = incident.value;
                    let (counter, owner) = (Counter::QueuedRequests, Owner::Port(port));
                    changes.push(Change { counter, owner, value: incident.value });
                }
            }
            Item::Operation(_) | Item::Connection(_) => {}
        }
        changes
    }

    fn flight(&mut self, port: u32, bytes: i64) -> Change {
        self.add(Counter::BytesInFlight, Owner::Port(port), bytes)
    }

    fn add(&mut self, counter: Counter, owner: Owner, change: i64) -> Change {
        let values = match owner {
            Owner::Rank(rank) => &mut self.ranks[rank as usize],
            Owner::Port(port) => &mut self.ports[port as usize],
        };
        let value = &mut values[counter.number() as usize];
        *value = value.saturating_add_signed(change);
        Change { counter, owner, value: *value }
    }
}

/// Returns a message's bytes; a damaged trace may have any number.
fn bytes(message: &Message) -> i64 {
    i64::try_from(message.bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::Threads;
    use crate::walk::Walk;

    #[test]
    fn a_length_that_no_message_has_is_counted_as_any() {
        let mut job = Job::synthetic(2, 20, 5);
        for (message, bytes) in job.messages.iter_mut().zip([u64::MAX, 1 << 63, (1 << 63) + 1].into_iter().cycle()) {
            message.bytes = bytes;
        }
        let threads = Threads::of(&job);
        let mut counters = Counters::of(&job);
        let steps = Walk::new(&job, &threads, 8);
        let most = steps.flat_map(|step| counters.step(&job, &step)).map(|change| change.value).max();
        assert!(most.is_some_and(|most| most >= i64::MAX.cast_unsigned()), "{most:?}");
    }

    #[test]
    fn whatever_is_counted_is_none_at_the_end_and_was_some_before() {
        let job = Job::synthetic(4, 2000, 5);
        let threads = Threads::of(&job);
        let mut counters = Counters::of(&job);
        let mut most = [0; Counter::ALL.len()];
        for step in Walk::new(&job, &threads, 8) {
            for change in counters.step(&job, &step) {
                let most = &mut most[change.counter.number() as usize];
                *most = change.value.max(*most);
            }
        }
        assert!(counters.ranks.iter().chain(&counters.ports).flatten().all(|value| *value == 0));
        assert!(most[..5].iter().all(|most| *most > 0), "{most:?}");
        assert!(most[Counter::PostedReceives.number() as usize] < 2000);
    }
}
