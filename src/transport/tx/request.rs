// SPDX-License-Identifier: MIT OR Apache-2.0
//! A request that waits to be posted. It owns the memory that its work request will borrow. Made by `port/send.rs` and
//! `port/waiting.rs`, kept in a connection's send queue (`send_queue.rs`). Grade: pending.

use crate::transport::completion::Token;
use ibex_ffi::verbs::{InlineSpan, LocalSpan, RemoteSpan, Work};
use std::mem::MaybeUninit;
use std::sync::Arc;

/// A write of no bytes needs no key at either end, and completes like any other request.
pub(crate) const NOTHING: Work<'static> =
    Work::WriteInline { bytes: InlineSpan::EMPTY, remote: RemoteSpan { addr: 0, rkey: 0 } };

/// Operation of a request, and the memory that it needs besides registered memory.
#[derive(Debug)]
pub(crate) enum Operation {
    /// A message gathered from one or two spans.
    Send { tag: u8, spans: [LocalSpan; 2], count: u8 },
    /// A message in unregistered memory.
    SendBytes {
        tag: u8,
        /// Memory with the message at its start, shared with the caller that queued it.
        bytes: Arc<[u8]>,
        length: u32,
    },
    /// Borrows only registered memory.
    Other(Work<'static>),
    /// An RDMA write of bytes that fit a work request.
    PutInline { bytes: Box<[MaybeUninit<u8>]>, remote: RemoteSpan },
    /// A place for messages with this tag, which the caller keeps ([`crate::transport::Port::queue_turn`]).
    Turn { tag: u8 },
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) token: Token,
    pub(crate) operation: Operation,
}

impl Request {
    /// A request that moves no bytes; its completion shows that all requests before it are done.
    pub(crate) const NOTHING: Request = Request { token: Token(0), operation: Operation::Other(NOTHING) };

    /// Returns the tag of a message or turn; `None` for any other operation.
    pub(crate) fn message_tag(&self) -> Option<u8> {
        match self.operation {
            Operation::Send { tag, .. } | Operation::SendBytes { tag, .. } | Operation::Turn { tag } => Some(tag),
            _ => None,
        }
    }

    /// Whether it is [`Request::NOTHING`].
    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self.operation, Operation::Other(Work::WriteInline { .. }))
    }

    pub(crate) fn is_turn(&self) -> bool {
        matches!(self.operation, Operation::Turn { .. })
    }
}
