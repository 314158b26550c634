// SPDX-License-Identifier: MIT OR Apache-2.0
//! The matching events, which the PML raises: requests, messages and searches. They are the last rows of the table
//! (`table.rs`). They have the names of PERUSE's events and of ibex' own, in the order of their numbers in `peruse.h`,
//! and share elements ([`MatchingEvent`]), as in PERUSE's specification; only the last one, which PERUSE lacks, has
//! others ([`ProtocolEvent`]). The PML knows their listeners (`delivery/direct.rs`), so they have no bit in the mask.
//! Grade: setup, but [`MatchingEvent::instance`] runs when a callback reads. Threads: plain data. Tests:
//! `tests/table.rs`.

use super::elements::{displacements, elements, extent, put};
use super::event_type::{Element, ElementType, EventType, StampedBy, TypeId, WORDS, Words};
use super::instance::EventInstance;
use super::table::place;
use crate::events::SourceId;

pub(in crate::events) const USED: usize = MatchingEvent::EXTENT.div_ceil(8);

/// Number of matching types.
pub const MATCHING_TYPES: usize = NAMES.len();

/// Position of the type whose elements are a [`ProtocolEvent`].
pub const PROTOCOL: usize = MATCHING_TYPES - 1;

elements! {
    /// The elements of all matching events but the last. The PML copies two at once, as its own record has this order.
    MatchingEvent {
        id: U64 "The number of the request, the message or the search: the same in all its events, and unique. PERUSE uses the same number.";
        bytes: U64 "The bytes of the message; for a request and the search for its message, the bytes of the caller's buffer, which may be more. 0 for a probe.";
        buffer: U64 "The buffer address of the request. 0 for a message, for the search for its receive and for a probe.";
        peer: I32 "The rank of the other process in the communicator (in the remote group of an intercommunicator); `MPI_ANY_SOURCE` for a receive or a probe with that wildcard.";
        tag: I32 "The tag, negative in collective operations; `MPI_ANY_TAG` for a receive or a probe with that wildcard.";
        operation: U32 "0: a send; 1: a receive, a message that has arrived, or a search.";
        context: U32 "The context number of the communicator.";
        posted: U32 "The number of posted receives of this communicator, when the element is read.";
        unexpected: U32 "The number of unexpected messages of this communicator, when the element is read.";
        count: I32 "The request's count of its datatype, at most `INT_MAX`; for a message the same as `bytes`.";
    }
}

elements! {
    /// The elements of the last event, which reports the protocol of a message.
    ProtocolEvent {
        id: U64 "The number of the request: the same in all its events.";
        message: U64 "For a receive, the number of its message, as in the events of the message. 0 for a send.";
        bytes: U64 "The bytes of the message; the receive buffer may be smaller.";
        context: U32 "The context number of the communicator.";
        protocol: U32 "How its bytes go. 0: inside the work request; 1: copied to a buffer of ibex, sent, and copied from one; 2: announced, and read by the receiver; 3: announced, and sent in copied pieces; 4: by the memory that the processes of a host share; 5: copied within this process. A receiver cannot tell 0 from 1 and goes by the length.";
        reason: U32 "Why so. 0: for its length; 1: no longer given; 2: a datatype with gaps, here or there; 3: memory that could not be registered; 4: the receiver holds its senders back; 5: the adapter cannot do better; 6: it is to this process; 7: the other process is on this host.";
        port: U32 "The index of the port among those of this process, from 0; of several the first. 4294967295: none, or it is not known.";
        queue_pair: U32 "The number of this side's queue pair on that port. 0: none, or it is not known: there may be no connection yet.";
        rails: U32 "By how many ports it goes. Of a send that the receiver reads: by how many it was announced; the receiver's event has by how many it is read.";
    }
}

macro_rules! names {
    ($( $name:ident, level $level:literal: $description:literal; )*) => {
        static NAMES: [(&str, u8, &str); [$(stringify!($name)),*].len()] = [$( (stringify!($name), $level, $description) ),*];
    };
}

names! {
    comm_req_activate, level 2: "A call begins a send or a receive.";
    comm_req_match_unex, level 2: "A receive matches an unexpected message.";
    comm_req_insert_in_posted_q, level 2: "A receive enters the posted receive queue.";
    comm_req_remove_from_posted_q, level 2: "A receive leaves the posted receive queue: its message has arrived, or it is cancelled.";
    comm_req_xfer_begin, level 2: "The first bytes of a message are about to be sent, or to be copied to the user's buffer. A message that the receiver reads begins for its sender with its end.";
    comm_req_xfer_end, level 2: "The adapter has the last bytes of a message, or they are in place; or the receiver's answer says that it has read them.";
    comm_req_complete, level 2: "A request is complete: the next wait or test succeeds.";
    comm_req_notify, level 2: "A wait or test reports the completion of a request, or a blocking call is about to return.";
    comm_msg_arrived, level 2: "A message has arrived: all of it, or its rendezvous request. It has no sequence number: the messages of a sender arrive in the order in which they were sent, by its connection, and no header says more. One that came before this process had made its communicator is told when that is made, with that time: the events of a source never go back in time.";
    comm_msg_insert_in_unex_q, level 2: "No receive matches a message that has arrived: it enters the unexpected message queue.";
    comm_msg_remove_from_unex_q, level 2: "A message leaves the unexpected message queue: a receive or a matched probe has taken it.";
    comm_msg_match_posted_req, level 2: "A message that has arrived matches a posted receive.";
    comm_search_posted_q_begin, level 4: "The search for the receive of a message begins.";
    comm_search_posted_q_end, level 4: "The search for the receive of a message ends.";
    comm_search_unex_q_begin, level 4: "The search for the message of a receive or of a probe begins.";
    comm_search_unex_q_end, level 4: "The search for the message of a receive or of a probe ends.";
    comm_req_xfer_continue, level 3: "A fragment of a message, neither the first nor the last, is sent or in place; a read of it, not the last, has completed.";
    comm_req_cancel, level 2: "A receive is cancelled: `MPI_Cancel` has come before its message.";
    comm_req_free, level 2: "MPI frees a request: in the wait or test that reports its completion, or in `MPI_Request_free`. If it is not complete its other events follow. A blocking call has no request of MPI's, and no such event.";
    comm_req_protocol, level 2: "The protocol of a message is known: for a send before its transfer ends, and if it is announced, just before its rendezvous request leaves; for a receive after the match. PERUSE has no such event. A second one follows if a message that was to be read is sent as copies: the receiver has asked for them, or the ports that were to read have failed.";
}

pub(super) const fn row(place_in_matching: usize) -> EventType {
    let (name, level, description) = NAMES[place_in_matching];
    let (elements, displacements, extent) = if place_in_matching == PROTOCOL {
        (ProtocolEvent::ELEMENTS, ProtocolEvent::DISPLACEMENTS, ProtocolEvent::EXTENT)
    } else {
        (MatchingEvent::ELEMENTS, MatchingEvent::DISPLACEMENTS, MatchingEvent::EXTENT)
    };
    let (bound, stamp) = (place(elements, "context"), StampedBy::Raiser);
    EventType { name, description, level, elements, displacements, extent, bound, stamp }
}
