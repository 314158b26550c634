// SPDX-License-Identifier: MIT OR Apache-2.0
//! The types of events that a face raises which does the matching: what becomes of requests, messages and searches.
//!
//! The last rows of the table (`table.rs`), after those that the engine raises itself. They have the names of PERUSE's
//! events, in the order of their numbers, and all have the same elements ([`MatchingEvent`]), as there a specification
//! is the same for all. No site of the engine looks whether somebody listens to them, so that they have no bit in the
//! mask; their raiser hands them to registrations itself (`direct.rs`). Path: setup, but for
//! [`MatchingEvent::instance`], which is made when a callback reads. Threads: plain data. Tests: `tests/table.rs`.

use super::event_type::{Element, ElementType, EventType, StampedBy, TypeId, Words, displacements, extent};
use super::instance::EventInstance;
use super::source_info::SourceId;

/// How many words its elements fill.
pub(super) const USED: usize = extent(KINDS).div_ceil(8);

/// How many there are.
pub const MATCHING_TYPES: usize = NAMES.len();

const KINDS: [ElementType; 10] = {
    use ElementType::{I32, U32, U64};
    [U64, U64, U64, I32, I32, U32, U32, U32, U32, I32]
};

/// In the order in which the raiser has most of them in its memory, so that two are copied at once.
static ELEMENTS: [Element; KINDS.len()] = [
    element(
        0,
        "id",
        "The number of the request, the message or the search that this is of: the same in all its events, and no other's. PERUSE has the same.",
    ),
    element(
        1,
        "bytes",
        "Of a message its bytes; of a request, and of the search for its message, those of what its caller gave, which may be more than come. 0 of a probe.",
    ),
    element(
        2,
        "buffer",
        "The address that the request's caller gave. 0 of a message, of the search for its receive and of a probe.",
    ),
    element(
        3,
        "peer",
        "The rank of the other process in the communicator (in the remote group of an intercommunicator). Of a receive or a probe that takes any: `MPI_ANY_SOURCE`.",
    ),
    element(
        4,
        "tag",
        "The message's tag, negative in collective operations. Of a receive or a probe that takes any: `MPI_ANY_TAG`.",
    ),
    element(5, "operation", "0: a send; 1: a receive, a message that has arrived, or a search."),
    element(6, "context", "The context number of the communicator."),
    element(7, "posted", "How many receives wait for their messages, in this communicator, when this is read."),
    element(8, "unexpected", "How many messages are unexpected, in this communicator, when this is read."),
    element(
        9,
        "count",
        "As many elements of its datatype as the request's caller gave, at most `INT_MAX`; of a message as `bytes`.",
    ),
];

const fn element(index: usize, name: &'static str, help: &'static str) -> Element {
    Element { name, element_type: KINDS[index], help }
}

/// Name, level, and what it tells.
static NAMES: [(&str, u8, &str); 17] = [
    ("comm_req_activate", 2, "A call begins a send or a receive."),
    ("comm_req_match_unex", 2, "A receive has an unexpected message."),
    ("comm_req_insert_in_posted_q", 2, "A receive waits for its message."),
    ("comm_req_remove_from_posted_q", 2, "A receive waits no longer: its message has come, or it is cancelled."),
    ("comm_req_xfer_begin", 2, "The first bytes of a message are about to go, or to be put where they belong."),
    ("comm_req_xfer_end", 2, "The adapter has the last bytes of a message, or they are where they belong."),
    ("comm_req_complete", 2, "A request is done: the next wait or test succeeds."),
    ("comm_req_notify", 2, "A wait or test says that a request is done, or a blocking call is about to return."),
    ("comm_msg_arrived", 2, "A message has arrived: all of it, or its announcement."),
    ("comm_msg_insert_in_unex_q", 2, "There is no receive for a message that has arrived: it is unexpected."),
    ("comm_msg_remove_from_unex_q", 2, "A message is unexpected no longer: a receive has it, or a matched probe."),
    ("comm_msg_match_posted_req", 2, "A receive was there for a message that has arrived."),
    ("comm_search_posted_q_begin", 4, "The receive of a message is about to be looked for."),
    ("comm_search_posted_q_end", 4, "The receive of a message has been looked for."),
    ("comm_search_unex_q_begin", 4, "The message of a receive or of a probe is about to be looked for."),
    ("comm_search_unex_q_end", 4, "The message of a receive or of a probe has been looked for."),
    (
        "comm_req_xfer_continue",
        3,
        "A piece of a message, neither the first nor the last, has gone or is where it belongs; a read of it, not the last, is done.",
    ),
];

static DISPLACEMENTS: [usize; KINDS.len()] = displacements(KINDS);

/// The row of the type at a place among these.
pub(super) const fn row(place: usize) -> EventType {
    let (name, level, description) = NAMES[place];
    EventType {
        name,
        description,
        level,
        elements: &ELEMENTS,
        displacements: &DISPLACEMENTS,
        extent: extent(KINDS),
        bound: Some(6),
        stamp: StampedBy::Raiser,
    }
}

/// The elements of such an event.
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
        let both = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
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

    /// As an instance.
    #[must_use]
    #[inline]
    pub fn instance(&self, event_type: TypeId, source: SourceId, timestamp: u64) -> EventInstance {
        EventInstance { event_type, source, timestamp, words: self.words() }
    }
}
