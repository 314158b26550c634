// SPDX-License-Identifier: MIT OR Apache-2.0
//! The matching events, which the PML raises: requests, messages and searches.
//!
//! They are the last rows of the table (`table.rs`), after those that the engine raises. They have the names of
//! PERUSE's events and of ibex' own, in the order of their numbers in `peruse.h`, and share elements
//! ([`MatchingEvent`]), as in PERUSE's specification; only the last one, which PERUSE lacks, has others
//! ([`ProtocolEvent`]). No site of the engine tests for their listeners, so they have no bit in the mask; the PML
//! delivers them itself (`direct.rs`). Path: setup, but [`MatchingEvent::instance`] runs when a callback reads.
//! Threads: plain data. Tests: `tests/table.rs`.

use super::event_type::{Element, ElementType, EventType, StampedBy, TypeId, Words, displacements, extent};
use super::instance::EventInstance;
use super::source_info::SourceId;

/// Number of words that the elements of a [`MatchingEvent`] fill.
pub(super) const USED: usize = extent(KINDS).div_ceil(8);

/// Number of matching types.
pub const MATCHING_TYPES: usize = NAMES.len();

/// Position of the type whose elements are a [`ProtocolEvent`].
pub const PROTOCOL: usize = MATCHING_TYPES - 1;

const KINDS: [ElementType; 10] = {
    use ElementType::{I32, U32, U64};
    [U64, U64, U64, I32, I32, U32, U32, U32, U32, I32]
};

/// In the order of most of these values in the raiser's memory, so that two are copied at once.
static ELEMENTS: [Element; KINDS.len()] = [
    element(
        KINDS[0],
        "id",
        "The number of the request, the message or the search: the same in all its events, and unique. PERUSE uses the same number.",
    ),
    element(
        KINDS[1],
        "bytes",
        "The bytes of the message; for a request and the search for its message, the bytes of the caller's buffer, which may be more. 0 for a probe.",
    ),
    element(
        KINDS[2],
        "buffer",
        "The buffer address of the request. 0 for a message, for the search for its receive and for a probe.",
    ),
    element(
        KINDS[3],
        "peer",
        "The rank of the other process in the communicator (in the remote group of an intercommunicator); `MPI_ANY_SOURCE` for a receive or a probe with that wildcard.",
    ),
    element(
        KINDS[4],
        "tag",
        "The tag, negative in collective operations; `MPI_ANY_TAG` for a receive or a probe with that wildcard.",
    ),
    element(KINDS[5], "operation", "0: a send; 1: a receive, a message that has arrived, or a search."),
    element(KINDS[6], "context", "The context number of the communicator."),
    element(KINDS[7], "posted", "The number of posted receives of this communicator, when the element is read."),
    element(
        KINDS[8],
        "unexpected",
        "The number of unexpected messages of this communicator, when the element is read.",
    ),
    element(
        KINDS[9],
        "count",
        "The request's count of its datatype, at most `INT_MAX`; for a message the same as `bytes`.",
    ),
];

const PROTOCOL_KINDS: [ElementType; 9] = {
    use ElementType::{U32, U64};
    [U64, U64, U64, U32, U32, U32, U32, U32, U32]
};

static PROTOCOL_ELEMENTS: [Element; PROTOCOL_KINDS.len()] = [
    element(PROTOCOL_KINDS[0], "id", "The number of the request: the same in all its events."),
    element(
        PROTOCOL_KINDS[1],
        "message",
        "For a receive, the number of its message, as in the events of the message. 0 for a send.",
    ),
    element(PROTOCOL_KINDS[2], "bytes", "The bytes of the message; the receive buffer may be smaller."),
    element(PROTOCOL_KINDS[3], "context", "The context number of the communicator."),
    element(
        PROTOCOL_KINDS[4],
        "protocol",
        "How its bytes go. 0: inside the work request; 1: copied to a buffer of ibex, sent, and copied from one; 2: announced, and read by the receiver; 3: announced, and sent in copied pieces; 4: by the memory that the processes of a host share; 5: copied within this process. A receiver cannot tell 0 from 1 and goes by the length.",
    ),
    element(
        PROTOCOL_KINDS[5],
        "reason",
        "Why so. 0: for its length; 1: a synchronous send; 2: a datatype with gaps, here or there; 3: memory that could not be registered; 4: the receiver holds its senders back; 5: the adapter cannot do better, or not now: there is no connection yet, or no room; 6: it is to this process; 7: the other process is on this host.",
    ),
    element(
        PROTOCOL_KINDS[6],
        "port",
        "The index of the port among those of this process, from 0; of several the first. 4294967295: none, or it is not known.",
    ),
    element(
        PROTOCOL_KINDS[7],
        "queue_pair",
        "The number of this side's queue pair on that port. 0: none, or it is not known.",
    ),
    element(
        PROTOCOL_KINDS[8],
        "rails",
        "By how many ports it goes. Of a send that the receiver reads: by how many it was announced; the receiver's event has by how many it is read.",
    ),
];

const fn element(element_type: ElementType, name: &'static str, help: &'static str) -> Element {
    Element { name, element_type, help }
}

/// Name, level and description of each type.
static NAMES: [(&str, u8, &str); 20] = [
    ("comm_req_activate", 2, "A call begins a send or a receive."),
    ("comm_req_match_unex", 2, "A receive matches an unexpected message."),
    ("comm_req_insert_in_posted_q", 2, "A receive enters the posted receive queue."),
    (
        "comm_req_remove_from_posted_q",
        2,
        "A receive leaves the posted receive queue: its message has arrived, or it is cancelled.",
    ),
    (
        "comm_req_xfer_begin",
        2,
        "The first bytes of a message are about to be sent, or to be copied to the user's buffer.",
    ),
    ("comm_req_xfer_end", 2, "The adapter has the last bytes of a message, or they are in place."),
    ("comm_req_complete", 2, "A request is complete: the next wait or test succeeds."),
    (
        "comm_req_notify",
        2,
        "A wait or test reports the completion of a request, or a blocking call is about to return.",
    ),
    (
        "comm_msg_arrived",
        2,
        "A message has arrived: all of it, or its rendezvous request. It has no sequence number: the messages of a sender arrive in the order in which they were sent, by its connection, and no header says more. One that came before this process had made its communicator is told when that is made, with that time: the events of a source never go back in time.",
    ),
    (
        "comm_msg_insert_in_unex_q",
        2,
        "No receive matches a message that has arrived: it enters the unexpected message queue.",
    ),
    (
        "comm_msg_remove_from_unex_q",
        2,
        "A message leaves the unexpected message queue: a receive or a matched probe has taken it.",
    ),
    ("comm_msg_match_posted_req", 2, "A message that has arrived matches a posted receive."),
    ("comm_search_posted_q_begin", 4, "The search for the receive of a message begins."),
    ("comm_search_posted_q_end", 4, "The search for the receive of a message ends."),
    ("comm_search_unex_q_begin", 4, "The search for the message of a receive or of a probe begins."),
    ("comm_search_unex_q_end", 4, "The search for the message of a receive or of a probe ends."),
    (
        "comm_req_xfer_continue",
        3,
        "A fragment of a message, neither the first nor the last, is sent or in place; a read of it, not the last, has completed.",
    ),
    ("comm_req_cancel", 2, "A receive is cancelled: `MPI_Cancel` has come before its message."),
    (
        "comm_req_free",
        2,
        "MPI frees a request: in the wait or test that reports its completion, or in `MPI_Request_free`. If it is not complete its other events follow. A blocking call has no request of MPI's, and no such event.",
    ),
    (
        "comm_req_protocol",
        2,
        "The protocol of a message is known: for a send before its transfer ends, for a receive after the match. PERUSE has no such event. A second one follows if the ports that were to read have failed, and copies are sent instead.",
    ),
];

static DISPLACEMENTS: [usize; KINDS.len()] = displacements(KINDS);
static PROTOCOL_DISPLACEMENTS: [usize; PROTOCOL_KINDS.len()] = displacements(PROTOCOL_KINDS);

/// The row of the type at this position.
pub(super) const fn row(place: usize) -> EventType {
    let (name, level, description) = NAMES[place];
    let stamp = StampedBy::Raiser;
    if place == PROTOCOL {
        let (elements, displacements, extent) = (&PROTOCOL_ELEMENTS, &PROTOCOL_DISPLACEMENTS, extent(PROTOCOL_KINDS));
        return EventType { name, description, level, elements, displacements, extent, bound: Some(3), stamp };
    }
    let (elements, displacements, extent) = (&ELEMENTS, &DISPLACEMENTS, extent(KINDS));
    EventType { name, description, level, elements, displacements, extent, bound: Some(6), stamp }
}

/// Packs two elements of 32 bits into a word.
#[inline(always)]
fn both(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// The elements of every matching event but the last type's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is an element of the table, which says what it is")]
pub struct MatchingEvent {
    pub id: u64,
    pub bytes: u64,
    pub buffer: u64,
    pub peer: i32,
    pub tag: i32,
    pub operation: u32,
    pub context: u32,
    pub posted: u32,
    pub unexpected: u32,
    pub count: i32,
}

impl MatchingEvent {
    #[inline(always)]
    pub(super) fn words(&self) -> Words {
        [
            self.id,
            self.bytes,
            self.buffer,
            both(self.peer.cast_unsigned(), self.tag.cast_unsigned()),
            both(self.operation, self.context),
            both(self.posted, self.unexpected),
            u64::from(self.count.cast_unsigned()),
            0,
            0,
            0,
            0,
            0,
        ]
    }

    /// Makes the event.
    #[must_use]
    #[inline]
    pub fn instance(&self, event_type: TypeId, source: SourceId, timestamp: u64) -> EventInstance {
        EventInstance { event_type, source, timestamp, words: self.words() }
    }
}

/// The elements of `comm_req_protocol`, the protocol by which a message is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is an element of the table, which says what it is")]
pub struct ProtocolEvent {
    pub id: u64,
    pub message: u64,
    pub bytes: u64,
    pub context: u32,
    pub protocol: u32,
    pub reason: u32,
    pub port: u32,
    pub queue_pair: u32,
    pub rails: u32,
}

impl ProtocolEvent {
    fn words(&self) -> Words {
        let (context, port) = (both(self.context, self.protocol), both(self.reason, self.port));
        let queue_pair = both(self.queue_pair, self.rails);
        [self.id, self.message, self.bytes, context, port, queue_pair, 0, 0, 0, 0, 0, 0]
    }

    /// Makes the event.
    #[must_use]
    pub fn instance(&self, event_type: TypeId, source: SourceId, timestamp: u64) -> EventInstance {
        EventInstance { event_type, source, timestamp, words: self.words() }
    }
}
