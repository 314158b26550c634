// SPDX-License-Identifier: MIT OR Apache-2.0
//! The meaning of a file's event types, and the positions of their elements. A file names its types and elements, in
//! any order; [`Vocabulary`] maps the number of a type to its meaning. It ignores unknown types and elements. Called by
//! `pass.rs`. Path: [`Seen::value`] is pending, ten times per event. Threads: plain data. Tests: below.

use ibex_trace::{Event, Head};

use crate::model::{IncidentKind, OperationKind, Queue};

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
    Started(OperationKind),
    Complete(OperationKind),
    Connection(Stage),
    Rare(IncidentKind),
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
    Cancel,
    Free,
    Arrived,
    Unexpected,
    Taken,
    MatchPosted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Transfer {
    Arrived,
    Begin,
    Continue,
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    Begin,
    Established,
    Failed,
}

macro_rules! elements {
    ($($element:ident $name:literal)*) => {
        #[derive(Debug, Clone, Copy)]
        pub(crate) enum Element { $($element,)* }

        const ELEMENTS: &[&str] = &[$($name,)*];
    };
}

elements! {
    Bytes "bytes" Call "call" Context "context" Count "count" Direction "direction" Event "event" First "first"
    Id "id" Ignore "ignore" Job "job" Kind "kind" Level "level" Message "message" Number "number" Offset "offset"
    Operation "operation" Peer "peer" Port "port" Posted "posted" Process "process" Protocol "protocol"
    QueuePair "queue_pair" Rails "rails" Rank "rank" Reason "reason" Remote "remote_queue_pair" Request "request"
    Side "side" Size "size" Status "status" Stride "stride" Tag "tag" Unexpected "unexpected" Waiting "waiting"
}

/// Name of each type without its prefix, and its meaning.
const TYPES: &[(&str, Kind)] = &[
    ("comm_req_activate", Kind::Matching(Step::Activate)),
    ("comm_req_match_unex", Kind::Matching(Step::MatchUnexpected)),
    ("comm_req_insert_in_posted_q", Kind::Matching(Step::Insert)),
    ("comm_req_remove_from_posted_q", Kind::Matching(Step::Remove)),
    ("comm_req_xfer_begin", Kind::Matching(Step::Begin)),
    ("comm_req_xfer_continue", Kind::Matching(Step::Continue)),
    ("comm_req_xfer_end", Kind::Matching(Step::End)),
    ("comm_req_complete", Kind::Matching(Step::Complete)),
    ("comm_req_notify", Kind::Matching(Step::Notify)),
    ("comm_req_cancel", Kind::Matching(Step::Cancel)),
    ("comm_req_free", Kind::Matching(Step::Free)),
    ("comm_msg_arrived", Kind::Matching(Step::Arrived)),
    ("comm_msg_insert_in_unex_q", Kind::Matching(Step::Unexpected)),
    ("comm_msg_remove_from_unex_q", Kind::Matching(Step::Taken)),
    ("comm_msg_match_posted_req", Kind::Matching(Step::MatchPosted)),
    ("comm_search_posted_q_begin", Kind::SearchBegin(Queue::Posted)),
    ("comm_search_posted_q_end", Kind::SearchEnd(Queue::Posted)),
    ("comm_search_unex_q_begin", Kind::SearchBegin(Queue::Unexpected)),
    ("comm_search_unex_q_end", Kind::SearchEnd(Queue::Unexpected)),
    ("comm_req_protocol", Kind::Protocol),
    ("communicator_created", Kind::Created),
    ("communicator_freed", Kind::Freed),
    ("msg_arrived", Kind::Transfer(Transfer::Arrived)),
    ("xfer_begin", Kind::Transfer(Transfer::Begin)),
    ("xfer_continue", Kind::Transfer(Transfer::Continue)),
    ("xfer_end", Kind::Transfer(Transfer::End)),
    ("put_started", Kind::Started(OperationKind::Put)),
    ("put_complete", Kind::Complete(OperationKind::Put)),
    ("get_started", Kind::Started(OperationKind::Get)),
    ("get_complete", Kind::Complete(OperationKind::Get)),
    ("atomic_started", Kind::Started(OperationKind::Atomic)),
    ("atomic_complete", Kind::Complete(OperationKind::Atomic)),
    ("connection_begin", Kind::Connection(Stage::Begin)),
    ("connection_established", Kind::Connection(Stage::Established)),
    ("connection_failed", Kind::Connection(Stage::Failed)),
    ("queued_begin", Kind::Rare(IncidentKind::QueuedBegin)),
    ("queued_end", Kind::Rare(IncidentKind::QueuedEnd)),
    ("receiver_not_ready", Kind::Rare(IncidentKind::ReceiverNotReady)),
    ("registration_miss", Kind::Rare(IncidentKind::RegistrationMiss)),
    ("registration_evict", Kind::Rare(IncidentKind::RegistrationEvict)),
    ("device_async", Kind::Rare(IncidentKind::DeviceAsync)),
    ("port_async", Kind::Rare(IncidentKind::PortAsync)),
    ("mpi_call_begin", Kind::CallBegin),
    ("mpi_call_end", Kind::CallEnd),
    ("mpi_pcontrol", Kind::Control),
];

#[derive(Debug, Clone, Copy)]
struct Meaning {
    kind: Kind,
    /// Positions of the elements among an event's values; [`NONE`] for elements that the type lacks.
    places: [u8; ELEMENTS.len()],
}

const NONE: u8 = u8::MAX;

/// Meaning of each type of the file.
#[derive(Debug)]
pub(crate) struct Vocabulary(Vec<Option<Meaning>>);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) kind: Kind,
    event: &'a Event,
    places: &'a [u8; ELEMENTS.len()],
}

impl Vocabulary {
    pub(crate) fn new(head: &Head) -> Vocabulary {
        let meaning = |of: &ibex_trace::EventType| {
            let name = ibex_trace::short(&of.name);
            let (_, kind) = TYPES.iter().find(|(known, _)| *known == name)?;
            let mut places = [NONE; ELEMENTS.len()];
            for (place, element) in places.iter_mut().zip(ELEMENTS) {
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
    pub(crate) fn value(&self, element: Element) -> u64 {
        self.event.values.get(usize::from(self.places[element as usize])).copied().unwrap_or(0)
    }

    /// Like [`Self::value`], as a number of 32 bits.
    #[inline]
    pub(crate) fn unsigned(&self, element: Element) -> u32 {
        self.value(element) as u32
    }

    /// Like [`Self::value`], as a signed number of 32 bits.
    #[inline]
    pub(crate) fn signed(&self, element: Element) -> i32 {
        self.value(element) as i32
    }

    /// Whether the type has an element.
    pub(crate) fn has(&self, element: Element) -> bool {
        self.places[element as usize] != NONE
    }

    /// Number of the source of the event.
    pub(crate) fn source(&self) -> usize {
        self.event.source.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibex_trace::{ElementKind, EventType, MOST_ELEMENTS};

    #[test]
    fn the_vocabulary_knows_types_by_name_and_takes_the_places_of_elements_from_the_file() {
        let of = |name: &str, elements: &[&str]| EventType {
            name: name.to_owned(),
            description: String::new(),
            elements: elements.iter().map(|name| ibex_trace::Element::new(name, ElementKind::I64, "")).collect(),
        };
        let types = vec![of("ibex_put_started", &["peer", "bytes"]), of("other", &["peer"])];
        let vocabulary = Vocabulary::new(&Head { types, ..Head::default() });
        let mut values = [0; MOST_ELEMENTS];
        values[..2].copy_from_slice(&[(-3_i64).cast_unsigned(), 9]);
        let mut event = Event { event_type: 0, source: 0, thread: 0, ticks: 0, time: None, values };
        let seen = vocabulary.seen(&event).expect("known");
        assert_eq!(seen.kind, Kind::Started(OperationKind::Put));
        assert_eq!((seen.signed(Element::Peer), seen.value(Element::Bytes), seen.value(Element::Status)), (-3, 9, 0));
        assert!(seen.has(Element::Peer) && !seen.has(Element::Status));
        event.event_type = 1;
        assert!(vocabulary.seen(&event).is_none());
        assert!(vocabulary.has(Kind::Started(OperationKind::Put)) && !vocabulary.has(Kind::Protocol));
    }
}
