// SPDX-License-Identifier: MIT OR Apache-2.0
//! A request that waits to be posted: it owns what its work request will borrow.
//!
//! Made by `port/send.rs` and `port/waiting.rs`, kept in a connection's send queue (`send_queue.rs`). Pending grade.

use crate::transport::completion::Token;
use ibex_ffi::verbs::{InlineSpan, LocalSpan, RemoteSpan, Work};
use std::mem::MaybeUninit;
use std::sync::Arc;

/// A write of no bytes needs no key at either end, and completes like any other request.
pub(crate) const NOTHING: Work<'static> =
    Work::WriteInline { bytes: InlineSpan::EMPTY, remote: RemoteSpan { addr: 0, rkey: 0 } };

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
    /// All else that borrows nothing but registered memory.
    Other(Work<'static>),
    /// An RDMA write of bytes that fit a work request.
    PutInline { bytes: Box<[MaybeUninit<u8>]>, remote: RemoteSpan },
}

/// A request that waits to be posted.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) token: Token,
    pub(crate) operation: Operation,
}

impl Request {
    /// A request that moves no byte, but is completed: tells that all before it is done.
    pub(crate) const NOTHING: Request = Request { token: Token(0), operation: Operation::Other(NOTHING) };

    /// The tag of a message; `None` of all else.
    pub(crate) fn message_tag(&self) -> Option<u8> {
        match self.operation {
            Operation::Send { tag, .. } | Operation::SendBytes { tag, .. } => Some(tag),
            _ => None,
        }
    }
}
