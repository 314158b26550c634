// SPDX-License-Identifier: MIT OR Apache-2.0
//! The life of an item as formats draw it: its times in order, and the phase that begins with each. A phase is named by
//! the events before it, so an unknown time only joins two phases. A time that contradicts the order (because adapter
//! and host clocks differ) is moved to the previous one: a life never runs backwards. Called by `walk.rs` and the
//! formats. Path: once for each step of each message; nothing is allocated. Threads: any. Times: nanoseconds since
//! 1970. Tests: below.

use arrayvec::ArrayVec;
use ibex_messages::{Connection, Job, Operation, OperationKind, ReceiveSide, SendSide, Time};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Item {
    /// Sender's side of the message with this index in the job.
    Send(u32),
    Receive(u32),
    Operation(u32),
    Connection(u32),
    /// A rare event: a single moment.
    Incident(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Moment {
    Activated,
    Announced,
    Begun,
    Ended,
    Completed,
    Notified,
    Arrived,
    Unexpected,
    Posted,
    Matched,
    Failed,
    Happened,
}

/// An enumeration whose values have, in formats, a number, a name and a meaning.
macro_rules! described {
    ($(#[$of:meta])* $name:ident: $($variant:ident $text:literal $meaning:literal)*) => {
        $(#[$of])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum $name { $($variant,)* }

        impl $name {
            pub(crate) const ALL: &[$name] = &[$($name::$variant,)*];

            pub(crate) const COUNT: u32 = $name::ALL.len() as u32;

            /// Returns the number in formats, from 0.
            pub(crate) fn number(self) -> u32 {
                self as u32
            }

            pub(crate) fn name(self) -> &'static str {
                [$($text,)*][self as usize]
            }

            pub(crate) fn description(self) -> &'static str {
                [$($meaning,)*][self as usize]
            }
        }
    };
}
pub(crate) use described;

described! {
    /// The state of an item between two moments.
    Phase:
    SendWaits "send waits" "from the call of the send until the first bytes or a rendezvous request leave"
    SendAnnounced "send announced"
        "from the departure of the rendezvous request until the first bytes leave, or the receiver has read them"
    SendGoes "send goes" "from the departure of the first bytes until the adapter has the last"
    SendEnds "send ends" "the adapter has the bytes, the request is not complete yet"
    SendDone "send done" "the request is complete, the caller has not been notified"
    ReceiveWaits "receive waits" "the receive has been called, its message has not arrived"
    MessageWaits "message waits" "the message has arrived, no receive has been called"
    Matching "matching" "message and receive both exist and are not matched yet"
    Matched "matched" "message and receive are matched, no bytes are in place yet"
    ReceiveGoes "receive goes" "the bytes arrive in place"
    ReceiveEnds "receive ends" "the bytes are in place, the request is not complete yet"
    ReceiveDone "receive done" "the request is complete, the caller has not been notified"
    Put "put" "an RDMA write of a one-sided operation"
    Get "get" "an RDMA read of a one-sided operation"
    Atomic "atomic" "an atomic operation on another process's memory"
    Connecting "connecting" "a connection is being made"
    Connected "connected" "a connection is ready, until it fails"
}

/// Moments of an item in the order of time.
pub(crate) type Life = ArrayVec<(Moment, i64), 9>;

/// Returns the life of an item; empty if no moment of it is known.
pub(crate) fn life(job: &Job, item: Item) -> Life {
    match item {
        Item::Send(place) => job.messages[place as usize].send.as_ref().map(of_send).unwrap_or_default(),
        Item::Receive(place) => job.messages[place as usize].receive.as_ref().map(of_receive).unwrap_or_default(),
        Item::Operation(place) => of_operation(&job.operations[place as usize]),
        Item::Connection(place) => of_connection(&job.connections[place as usize]),
        Item::Incident(place) => in_order([(Moment::Happened, Some(job.incidents[place as usize].time))]),
    }
}

/// Returns the phase that begins with the moment at `position`; `None` for the last.
pub(crate) fn phase(job: &Job, item: Item, life: &Life, position: usize) -> Option<Phase> {
    if position + 1 >= life.len() {
        return None;
    }
    let moment = life[position].0;
    Some(match item {
        Item::Send(_) => match moment {
            Moment::Announced => Phase::SendAnnounced,
            Moment::Begun => Phase::SendGoes,
            Moment::Ended => Phase::SendEnds,
            Moment::Completed | Moment::Notified => Phase::SendDone,
            _ => Phase::SendWaits,
        },
        Item::Receive(_) => match moment {
            Moment::Begun => Phase::ReceiveGoes,
            Moment::Ended => Phase::ReceiveEnds,
            Moment::Completed | Moment::Notified => Phase::ReceiveDone,
            Moment::Matched => Phase::Matched,
            _ => before_match(&life[..=position]),
        },
        Item::Operation(place) => match job.operations[place as usize].kind {
            OperationKind::Put => Phase::Put,
            OperationKind::Get => Phase::Get,
            OperationKind::Atomic => Phase::Atomic,
        },
        Item::Connection(_) if moment == Moment::Completed => Phase::Connected,
        Item::Connection(_) | Item::Incident(_) => Phase::Connecting,
    })
}

/// Returns which side waits, before a receive and a message match.
fn before_match(so_far: &[(Moment, i64)]) -> Phase {
    let is_any = |moments: [Moment; 2]| so_far.iter().any(|(moment, _)| moments.contains(moment));
    let is_called = is_any([Moment::Activated, Moment::Posted]);
    let is_here = is_any([Moment::Arrived, Moment::Unexpected]);
    match (is_called, is_here) {
        (true, false) => Phase::ReceiveWaits,
        (false, _) => Phase::MessageWaits,
        (true, true) => Phase::Matching,
    }
}

fn of_send(side: &SendSide) -> Life {
    in_order([
        (Moment::Activated, side.activated),
        (Moment::Announced, side.announced),
        (Moment::Begun, side.begun),
        (Moment::Ended, side.ended),
        (Moment::Completed, side.completed),
        (Moment::Notified, side.notified),
    ])
}

/// Returns the moment at which a message leaves: its rendezvous request, or its first bytes.
pub(crate) fn left(side: &SendSide) -> Option<Moment> {
    side.announced.map(|_| Moment::Announced).or(side.begun.map(|_| Moment::Begun))
}

/// Before their match, the receive and the message come in either order.
fn of_receive(side: &ReceiveSide) -> Life {
    let call = in_order([(Moment::Activated, side.activated), (Moment::Posted, side.posted)]);
    let message = in_order([(Moment::Arrived, side.arrived), (Moment::Unexpected, side.unexpected)]);
    let mut life: Life = call.into_iter().chain(message).collect();
    life.sort_by_key(|(_, time)| *time);
    let rest = [
        (Moment::Matched, side.matched),
        (Moment::Begun, side.begun),
        (Moment::Ended, side.ended),
        (Moment::Completed, side.completed),
        (Moment::Notified, side.notified),
    ];
    append(&mut life, rest);
    life
}

fn of_operation(operation: &Operation) -> Life {
    in_order([(Moment::Begun, operation.begun), (Moment::Completed, operation.completed)])
}

fn of_connection(connection: &Connection) -> Life {
    in_order([
        (Moment::Begun, connection.begun),
        (Moment::Completed, connection.established),
        (Moment::Failed, connection.failed),
    ])
}

fn in_order<const COUNT: usize>(moments: [(Moment, Option<Time>); COUNT]) -> Life {
    let mut life = Life::new();
    append(&mut life, moments);
    life
}

fn append<const COUNT: usize>(life: &mut Life, moments: [(Moment, Option<Time>); COUNT]) {
    for (moment, time) in moments {
        if let Some(time) = time {
            let before = life.last().map_or(i64::MIN, |(_, time)| *time);
            life.push((moment, time.nanoseconds().max(before)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(job: &Job, item: Item) -> Vec<&'static str> {
        let life = life(job, item);
        (0..life.len()).filter_map(|position| phase(job, item, &life, position)).map(Phase::name).collect()
    }

    #[test]
    fn a_receive_waits_for_its_message_or_the_message_for_it() {
        let job = Job::synthetic(2, 100, 3);
        for (place, message) in job.messages.iter().enumerate() {
            let is_expected = message.receive.is_some_and(|side| side.posted.is_some());
            let first = names(&job, Item::Receive(place as u32))[0];
            assert_eq!(first, if is_expected { "receive waits" } else { "message waits" });
            let is_announced = message.send.is_some_and(|side| side.announced.is_some());
            let mut send = vec!["send waits", "send announced", "send goes", "send ends", "send done"];
            send.retain(|phase| is_announced || *phase != "send announced");
            assert_eq!(names(&job, Item::Send(place as u32)), send);
        }
    }

    #[test]
    fn a_moment_that_contradicts_its_order_does_not_turn_time_back() {
        let mut job = Job::synthetic(2, 1, 3);
        let side = job.messages[0].send.as_mut().expect("made");
        side.ended = Some(Time::new(5));
        let is_announced = side.announced.is_some();
        let life = life(&job, Item::Send(0));
        assert!(life.is_sorted_by_key(|(_, time)| *time));
        assert_eq!(life.len(), 5 + usize::from(is_announced));
    }
}
