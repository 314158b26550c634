// SPDX-License-Identifier: MIT OR Apache-2.0
//! A request that waits to be posted: it owns what its work request will borrow.
//!
//! Made by `port/send.rs` and `port/waiting.rs`, kept in a connection's send queue (`send_queue.rs`). Pending grade.

use crate::transport::completion::Token;
use ibex_ffi::verbs::{LocalSpan, RemoteSpan};
use std::mem::MaybeUninit;
use std::sync::Arc;

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
    /// An RDMA write.
    Put { local: LocalSpan, remote: RemoteSpan },
    /// An RDMA write of bytes that fit a work request.
    PutInline { bytes: Box<[MaybeUninit<u8>]>, remote: RemoteSpan },
    /// An RDMA read.
    Get { local: LocalSpan, remote: RemoteSpan },
    /// An atomic addition.
    FetchAdd { local: LocalSpan, remote: RemoteSpan, operand: u64 },
    /// An atomic compare-and-swap.
    CompareSwap { local: LocalSpan, remote: RemoteSpan, compare: u64, swap: u64 },
    /// Nothing, but completed: tells that all before it is done.
    Nothing,
}

/// A request that waits to be posted.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) token: Token,
    pub(crate) operation: Operation,
}

impl Request {
    /// A request that moves no byte, for its completion.
    pub(crate) const NOTHING: Request = Request { token: Token(0), operation: Operation::Nothing };

    /// The tag of a message; `None` of all else.
    pub(crate) fn message_tag(&self) -> Option<u8> {
        match self.operation {
            Operation::Send { tag, .. } | Operation::SendBytes { tag, .. } => Some(tag),
            _ => None,
        }
    }
}
