// SPDX-License-Identifier: MIT OR Apache-2.0
//! The meaning of a file's event types, and the positions of their elements. A file names its types and elements, in
//! any order; [`Vocabulary`] maps the number of a type to its meaning. Unknown types and elements are ignored. Called
//! by `pass.rs`. Path: [`Seen::value`] is pending, ten times per event. Threads: plain data. Tests: below.

use ibex_trace::{Event, Head};

use crate::model::Queue;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// A step of a request or message in ibex' own matching.
    Matching(Step),
    SearchBegin(Queue),
    SearchEnd(Queue),
    /// The protocol that carries the bytes of a request.
    Protocol,
    /// Members of a new communicator.
    Created,
    Freed,
    Transfer(Transfer),
    /// ibex accepts a one-sided operation.
    Started(Which),
    Complete(Which),
    Connection(Stage),
    Rare(Rarity),
    /// The begin of an MPI call in which the process can wait.
    CallBegin,
    CallEnd,
    /// The program stops the recording, or resumes it.
    Control,
}

/// A step of a request or message; docs/peruse.md says when each comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    Activate,
    MatchUnexpected,
    Insert,
    Remove,
    Begin,
    Continue,
    End,
    Complete,
    Notify,
    Arrived,
    Unexpected,
    Taken,
    MatchPosted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Transfer {
    Arrived,
    Continue,
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Which {
    Put,
    Get,
    Atomic,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    Begin,
    Established,
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Rarity {
    QueuedBegin,
    QueuedEnd,
    ReceiverNotReady,
    Miss,
    Evict,
    Device,
    Port,
}

/// Largest number of elements that any type of [`TYPES`] has.
const MOST: usize = 10;

/// Positions of elements in [`MATCHING`].
pub(crate) mod matching {
    pub(crate) const ID: usize = 0;
    pub(crate) const BYTES: usize = 1;
    pub(crate) const PEER: usize = 2;
    pub(crate) const TAG: usize = 3;
    pub(crate) const OPERATION: usize = 4;
    pub(crate) const CONTEXT: usize = 5;
    pub(crate) const POSTED: usize = 6;
    pub(crate) const UNEXPECTED: usize = 7;
}

/// Positions of the elements of `comm_req_protocol`.
pub(crate) mod protocol {
    pub(crate) const ID: usize = 0;
    pub(crate) const MESSAGE: usize = 1;
    pub(crate) const BYTES: usize = 2;
    pub(crate) const PROTOCOL: usize = 3;
    pub(crate) const REASON: usize = 4;
    pub(crate) const PORT: usize = 5;
    pub(crate) const QUEUE_PAIR: usize = 6;
    pub(crate) const RAILS: usize = 7;
}

/// Positions of the elements of `communicator_created` and `communicator_freed`.
pub(crate) mod created {
    pub(crate) const CONTEXT: usize = 0;
    pub(crate) const KIND: usize = 1;
    pub(crate) const RANK: usize = 2;
    pub(crate) const SIZE: usize = 3;
    pub(crate) const SIDE: usize = 4;
    pub(crate) const FIRST: usize = 5;
    pub(crate) const COUNT: usize = 6;
    pub(crate) const PROCESS: usize = 7;
    pub(crate) const STRIDE: usize = 8;
    pub(crate) const JOB: usize = 9;
}

pub(crate) mod transfer {
    pub(crate) const MESSAGE: usize = 0;
    pub(crate) const CONTEXT: usize = 1;
    pub(crate) const DIRECTION: usize = 2;
    pub(crate) const REQUEST: usize = 3;
    pub(crate) const OFFSET: usize = 4;
    pub(crate) const BYTES: usize = 5;
}

pub(crate) mod other {
    pub(crate) const OPERATION: usize = 0;
    pub(crate) const BYTES: usize = 1;
    pub(crate) const PEER: usize = 2;
    pub(crate) const PORT: usize = 3;
    pub(crate) const STATUS: usize = 4;
    pub(crate) const QUEUE_PAIR: usize = 5;
    pub(crate) const REMOTE: usize = 6;
    pub(crate) const WAITING: usize = 7;
    pub(crate) const EVENT: usize = 8;
    pub(crate) const REQUEST: usize = 9;
}

pub(crate) mod call {
    pub(crate) const CALL: usize = 0;
    pub(crate) const NUMBER: usize = 1;
}

pub(crate) mod control {
    pub(crate) const LEVEL: usize = 0;
}

const MATCHING: &[&str] = &["id", "bytes", "peer", "tag", "operation", "context", "posted", "unexpected"];
const PROTOCOL: &[&str] = &["id", "message", "bytes", "protocol", "reason", "port", "queue_pair", "rails"];
const CREATED: &[&str] = &["context", "kind", "rank", "size", "side", "first", "count", "process", "stride", "job"];
const TRANSFER: &[&str] = &["message", "context", "direction", "request", "offset", "bytes"];
const OTHER: &[&str] =
    &["operation", "bytes", "peer", "port", "status", "queue_pair", "remote_queue_pair", "waiting", "event", "request"];
const CALL: &[&str] = &["call", "number"];

/// Name of each type without its prefix, its meaning and its elements.
const TYPES: &[(&str, Kind, &[&str])] = &[
    ("comm_req_activate", Kind::Matching(Step::Activate), MATCHING),
    ("comm_req_match_unex", Kind::Matching(Step::MatchUnexpected), MATCHING),
    ("comm_req_insert_in_posted_q", Kind::Matching(Step::Insert), MATCHING),
    ("comm_req_remove_from_posted_q", Kind::Matching(Step::Remove), MATCHING),
    ("comm_req_xfer_begin", Kind::Matching(Step::Begin), MATCHING),
    ("comm_req_xfer_continue", Kind::Matching(Step::Continue), MATCHING),
    ("comm_req_xfer_end", Kind::Matching(Step::End), MATCHING),
    ("comm_req_complete", Kind::Matching(Step::Complete), MATCHING),
    ("comm_req_notify", Kind::Matching(Step::Notify), MATCHING),
    ("comm_msg_arrived", Kind::Matching(Step::Arrived), MATCHING),
    ("comm_msg_insert_in_unex_q", Kind::Matching(Step::Unexpected), MATCHING),
    ("comm_msg_remove_from_unex_q", Kind::Matching(Step::Taken), MATCHING),
    ("comm_msg_match_posted_req", Kind::Matching(Step::MatchPosted), MATCHING),
    ("comm_search_posted_q_begin", Kind::SearchBegin(Queue::Posted), MATCHING),
    ("comm_search_posted_q_end", Kind::SearchEnd(Queue::Posted), MATCHING),
    ("comm_search_unex_q_begin", Kind::SearchBegin(Queue::Unexpected), MATCHING),
    ("comm_search_unex_q_end", Kind::SearchEnd(Queue::Unexpected), MATCHING),
    ("comm_req_protocol", Kind::Protocol, PROTOCOL),
    ("communicator_created", Kind::Created, CREATED),
    ("communicator_freed", Kind::Freed, CREATED),
    ("msg_arrived", Kind::Transfer(Transfer::Arrived), TRANSFER),
    ("xfer_continue", Kind::Transfer(Transfer::Continue), TRANSFER),
    ("xfer_end", Kind::Transfer(Transfer::End), TRANSFER),
    ("put_started", Kind::Started(Which::Put), OTHER),
    ("put_complete", Kind::Complete(Which::Put), OTHER),
    ("get_started", Kind::Started(Which::Get), OTHER),
    ("get_complete", Kind::Complete(Which::Get), OTHER),
    ("atomic_started", Kind::Started(Which::Atomic), OTHER),
    ("atomic_complete", Kind::Complete(Which::Atomic), OTHER),
    ("connection_begin", Kind::Connection(Stage::Begin), OTHER),
    ("connection_established", Kind::Connection(Stage::Established), OTHER),
    ("connection_failed", Kind::Connection(Stage::Failed), OTHER),
    ("queued_begin", Kind::Rare(Rarity::QueuedBegin), OTHER),
    ("queued_end", Kind::Rare(Rarity::QueuedEnd), OTHER),
    ("receiver_not_ready", Kind::Rare(Rarity::ReceiverNotReady), OTHER),
    ("registration_miss", Kind::Rare(Rarity::Miss), OTHER),
    ("registration_evict", Kind::Rare(Rarity::Evict), OTHER),
    ("device_async", Kind::Rare(Rarity::Device), OTHER),
    ("port_async", Kind::Rare(Rarity::Port), OTHER),
    ("mpi_call_begin", Kind::CallBegin, CALL),
    ("mpi_call_end", Kind::CallEnd, CALL),
    ("mpi_pcontrol", Kind::Control, &["level"]),
];

#[derive(Debug, Clone, Copy)]
struct Meaning {
    kind: Kind,
    /// Positions of the elements among an event's values; [`NONE`] for elements that the type lacks.
    places: [u8; MOST],
}

const NONE: u8 = u8::MAX;

/// Meaning of each type of the file.
#[derive(Debug)]
pub(crate) struct Vocabulary(Vec<Option<Meaning>>);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) kind: Kind,
    event: &'a Event,
    places: &'a [u8; MOST],
}

impl Vocabulary {
    pub(crate) fn new(head: &Head) -> Vocabulary {
        let meaning = |of: &ibex_trace::EventType| {
            let name = ibex_trace::short(&of.name);
            let (_, kind, elements) = TYPES.iter().find(|(known, ..)| *known == name)?;
            let mut places = [NONE; MOST];
            for (place, element) in places.iter_mut().zip(*elements) {
                *place = of.element(element).map_or(NONE, |at| at as u8);
            }
            Some(Meaning { kind: *kind, places })
        };
        Vocabulary(head.types.iter().map(meaning).collect())
    }

    #[inline]
    pub(crate) fn seen<'a>(&'a self, event: &'a Event) -> Option<Seen<'a>> {
        let meaning = self.0.get(usize::from(event.event_type))?.as_ref()?;
        Some(Seen { kind: meaning.kind, event, places: &meaning.places })
    }

    pub(crate) fn kind(&self, event_type: usize) -> Option<Kind> {
        Some(self.0.get(event_type)?.as_ref()?.kind)
    }

    pub(crate) fn has(&self, kind: Kind) -> bool {
        self.0.iter().flatten().any(|meaning| meaning.kind == kind)
    }
}

impl Seen<'_> {
    /// Returns the value of an element; 0 if the type lacks it.
    #[inline]
    pub(crate) fn value(&self, element: usize) -> u64 {
        self.event.values.get(usize::from(self.places[element])).copied().unwrap_or(0)
    }

    /// Like [`Self::value`], as a number of 32 bits.
    #[inline]
    pub(crate) fn unsigned(&self, element: usize) -> u32 {
        self.value(element) as u32
    }

    /// Like [`Self::value`], as a signed number of 32 bits.
    #[inline]
    pub(crate) fn signed(&self, element: usize) -> i32 {
        self.value(element) as i32
    }

    /// Whether the type has an element.
    pub(crate) fn has(&self, element: usize) -> bool {
        self.places[element] != NONE
    }

    /// Number of the source of the event.
    pub(crate) fn source(&self) -> usize {
        self.event.source.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibex_trace::{Element, ElementKind, EventType, MOST_ELEMENTS};

    #[test]
    fn types_are_known_by_their_names_and_elements_are_where_the_file_says() {
        let of = |name: &str, elements: &[&str]| EventType {
            name: name.to_owned(),
            description: String::new(),
            elements: elements.iter().map(|name| Element::new(name, ElementKind::I64, "")).collect(),
        };
        let types = vec![of("ibex_put_started", &["peer", "bytes"]), of("other", &["peer"])];
        let vocabulary = Vocabulary::new(&Head { types, ..Head::default() });
        let mut values = [0; MOST_ELEMENTS];
        values[..2].copy_from_slice(&[(-3_i64).cast_unsigned(), 9]);
        let mut event = Event { event_type: 0, source: 0, thread: 0, ticks: 0, time: None, values };
        let seen = vocabulary.seen(&event).expect("known");
        assert_eq!(seen.kind, Kind::Started(Which::Put));
        assert_eq!((seen.signed(other::PEER), seen.value(other::BYTES), seen.value(other::STATUS)), (-3, 9, 0));
        assert!(seen.has(other::PEER) && !seen.has(other::STATUS));
        event.event_type = 1;
        assert!(vocabulary.seen(&event).is_none());
        assert!(vocabulary.has(Kind::Started(Which::Put)) && !vocabulary.has(Kind::Protocol));
    }
}
