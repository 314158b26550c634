// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failover data for a caller with several ports: messages of a failed connection that never reached the adapter, and
//! the connections that failed with possibly lost messages. Filled by `port/waiting.rs` and `port/fail.rs`, read by
//! `port/divert.rs`. Grade: setup. Plain data. Tests: `port/tests/rails.rs`.

use super::completion::Token;
use super::tx::request::{Operation, Request};
use super::work_request::EndpointId;
use ibex_ffi::verbs::LocalSpan;
use std::sync::Arc;

/// A message that never reached the adapter. Its token does not come back.
#[derive(Debug)]
pub enum Unposted {
    /// A message in registered memory.
    Spans {
        /// One or two spans; the second may be empty.
        spans: [LocalSpan; 2],
        /// The token.
        token: Token,
    },
    /// A message in unregistered memory.
    Bytes {
        /// Memory with the message at its start.
        bytes: Arc<[u8]>,
        /// Number of bytes.
        length: u32,
        /// The token; 0 if it has none.
        token: Token,
    },
}

impl Unposted {
    /// Returns the message of a request; `None` for any other operation.
    pub(super) fn of(request: Request) -> Option<Unposted> {
        let token = request.token;
        match request.operation {
            Operation::Send { spans, .. } => Some(Unposted::Spans { spans, token }),
            Operation::SendBytes { bytes, length, .. } => Some(Unposted::Bytes { bytes, length, token }),
            _ => None,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Tag of the messages to keep.
    pub(super) tag: Option<u8>,
    unposted: Vec<(EndpointId, Unposted)>,
    /// Endpoints of connections that failed with possibly undelivered messages.
    lost: Vec<EndpointId>,
}

impl Kept {
    /// Keeps a request that waited for a failed connection. Returns the request if it is not a message with that tag.
    pub(super) fn keep(&mut self, to: EndpointId, request: Request) -> Option<Request> {
        if self.tag.is_none() || request.message_tag() != self.tag {
            return Some(request);
        }
        self.unposted.extend(Unposted::of(request).map(|message| (to, message)));
        None
    }

    /// Notes a failed connection if messages of it may be lost (`has_messages`).
    pub(super) fn note_failure(&mut self, to: EndpointId, has_messages: bool) {
        if self.tag.is_some() && has_messages {
            self.lost.push(to);
        }
    }

    pub(super) fn note_lost(&mut self, of: EndpointId) {
        self.lost.push(of);
    }

    pub(super) fn take(&mut self, of: EndpointId) -> Vec<Unposted> {
        self.unposted.extract_if(.., |(to, _)| *to == of).map(|(_, message)| message).collect()
    }

    /// Whether the connection failed with messages that may not have been delivered.
    pub(super) fn has_lost(&self, of: EndpointId) -> bool {
        self.lost.contains(&of)
    }
}
