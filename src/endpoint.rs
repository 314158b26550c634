// SPDX-License-Identifier: MIT OR Apache-2.0
//! A peer as a port sees it: 32 bytes until it is spoken to, a connection from then on.
//!
//! Owned by `port.rs`; `send.rs` and `backlog.rs` post to its connection, `poll.rs` retires from it, `connecting.rs` makes it. The fields that
//! a post or a retirement touches lie together. Budget: an endpoint at most 64 bytes, a connection at most 1 KiB beside
//! the adapter's own buffers; both held by tests at the end of the file.

use crate::bounce::InUse;
use crate::connect::handshake::Handshake;
use crate::connect::key::Key;
use crate::event::{Immediate, Token};
use crate::failure::Failure;
use crate::patience::Patience;
use crate::peer::PeerName;
use crate::posted::List;
use crate::room::Refusals;
use ibex_ffi::verbs::{LocalSpan, QueuePair, RemoteSpan};
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// A peer.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) name: PeerName,
    /// The peer's port this endpoint is paired with, as its place in the peer's modex.
    pub(crate) remote_port: u8,
    /// Given up by the upper layer ([`crate::port::Port::forget`]).
    pub(crate) forgotten: bool,
    /// Its messages go by another port for now (`divert.rs`).
    pub(crate) diverted: bool,
    /// Made by the first message to or from the peer.
    pub(crate) connection: Option<Box<Connection>>,
    /// Why the connection failed, or could not be made.
    pub(crate) failure: Option<Box<Failure>>,
}

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// The handshake is under way; requests wait.
    Connecting,
    /// Both sides are set.
    Ready,
    /// Both sides are set, and new messages go by another port (`divert.rs`).
    Aside,
    /// It failed; requests are refused.
    Failed,
}

/// A queue pair to a peer, and what is posted to it or waits for it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) qp: QueuePair,
    pub(crate) state: State,
    /// Work requests posted since it was made; wraps.
    pub(crate) posted: u32,
    /// Those known to be done.
    pub(crate) retired: u32,
    /// How many may be posted and not done.
    pub(crate) depth: u32,
    /// What `posted` may grow to; equal to it while nothing may be posted. Kept by [`Connection::set_limit`].
    pub(crate) limit: u32,
    /// What `posted` was when a request last asked for a completion.
    pub(crate) signalled: u32,
    /// What `posted` was when peers were last probed.
    pub(crate) looked_at: u32,
    /// How the peer names this endpoint in immediates; see [`Immediate`].
    pub(crate) named: u32,
    /// Tokens of what is posted.
    pub(crate) list: List,
    /// The bounce buffers that posted requests use.
    pub(crate) bounced: InUse,
    /// What could not be posted yet, in order. While there is any, everything queues behind it.
    pub(crate) pending: VecDeque<Request>,
    /// Whether the port's backlog has this endpoint.
    pub(crate) in_backlog: bool,
    /// How often the adapter had no room.
    pub(crate) refusals: Refusals,
    /// With what hellos to the peer are sealed.
    pub(crate) key: Key,
    /// Reads and atomics it may have in flight, as both sides have said.
    pub(crate) initiator_depth: u8,
    /// How long the adapter waits for an acknowledgement, and how often.
    pub(crate) patience: Patience,
    /// The handshake; kept while connected, for a peer that missed its last word.
    pub(crate) handshake: Box<Handshake>,
}

impl Connection {
    /// Requests the adapter has.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        self.posted.wrapping_sub(self.retired)
    }

    /// Requests posted since one last asked for a completion.
    #[inline]
    pub(crate) fn unsignalled(&self) -> u32 {
        self.posted.wrapping_sub(self.signalled)
    }

    /// Works out anew how far requests may be posted. To be called after every change of the state, of what is done and of
    /// what waits, so that a post has one comparison to make.
    #[inline]
    pub(crate) fn set_limit(&mut self) {
        let open = self.state == State::Ready && self.pending.is_empty();
        self.limit = if open { self.retired.wrapping_add(self.depth) } else { self.posted };
    }

    /// As [`Self::set_limit`], for requests that are posted although the peer is diverted.
    pub(crate) fn open(&mut self) {
        let state = self.state;
        if state == State::Aside {
            self.state = State::Ready;
        }
        self.set_limit();
        self.state = state;
    }

    /// Whether both sides are set.
    pub(crate) fn is_made(&self) -> bool {
        matches!(self.state, State::Ready | State::Aside)
    }

    /// Sends new messages by another port, or by this one again.
    pub(crate) fn divert(&mut self, diverted: bool) {
        if self.is_made() {
            self.state = if diverted { State::Aside } else { State::Ready };
            self.set_limit();
        }
    }

    /// Whether a request is under way that asked for a completion.
    pub(crate) fn is_completion_due(&self) -> bool {
        self.signalled != self.retired
    }

    /// The request numbered `through` and all before it are done. Returns how many that makes; `None` for a number of a queue
    /// pair that this endpoint had before.
    #[inline]
    pub(crate) fn retire(&mut self, through: u32) -> Option<u32> {
        let retired = through.wrapping_add(1);
        let done = retired.wrapping_sub(self.retired);
        if done > self.in_flight() {
            return None;
        }
        self.retired = retired;
        self.set_limit();
        Some(done)
    }

    #[inline]
    pub(crate) fn immediate(&self, tag: u8) -> u32 {
        Immediate::new(tag, self.named).0
    }
}

/// What a request does, with what it needs beside its local memory.
#[derive(Debug)]
pub(crate) enum Operation {
    /// A message of one or two spans.
    Send {
        /// The tag it carries.
        tag: u8,
        /// The memory it is gathered from.
        spans: [LocalSpan; 2],
        /// How many of them.
        count: u8,
    },
    /// A message in memory of no registration.
    SendBytes {
        /// The tag it carries.
        tag: u8,
        /// Memory that it stands at the start of, shared with who queued it.
        bytes: Arc<[u8]>,
        /// How many bytes it has.
        length: u32,
    },
    Put {
        local: LocalSpan,
        remote: RemoteSpan,
    },
    PutInline {
        bytes: Box<[MaybeUninit<u8>]>,
        remote: RemoteSpan,
    },
    Get {
        local: LocalSpan,
        remote: RemoteSpan,
    },
    FetchAdd {
        local: LocalSpan,
        remote: RemoteSpan,
        operand: u64,
    },
    CompareSwap {
        local: LocalSpan,
        remote: RemoteSpan,
        compare: u64,
        swap: u64,
    },
    /// Nothing, but completed: tells that all before it is done.
    Nothing,
}

/// A request that waits to be posted.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) token: Token,
    pub(crate) operation: Operation,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_never_spoken_to_takes_at_most_64_bytes() {
        assert!(size_of::<Endpoint>() <= 64, "{}", size_of::<Endpoint>());
    }

    #[test]
    fn a_connection_takes_at_most_a_kibibyte() {
        let bytes = size_of::<Connection>() + size_of::<Handshake>();
        assert!(bytes <= 1024, "{bytes}");
    }
}
