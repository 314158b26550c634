// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of an operation, as a program reads it from a completion queue (`fi_cq(3)`). Made by the endpoint; given to
//! its queues. Grade: hot. Threads: plain data.

use super::fi;

/// The end of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The program's context of the operation, an address.
    pub context: usize,
    /// `FI_TAGGED | FI_RECV`, ...
    pub flags: u64,
    /// Number of bytes that were received.
    pub length: usize,
    /// Address of the received data, of a buffer for several messages; else 0.
    pub buffer: usize,
    /// Remote CQ data.
    pub data: u64,
    /// The message's tag.
    pub tag: u64,
    /// Source of a received message, in the address vector.
    pub source: fi::Address,
}

impl Default for Completion {
    fn default() -> Self {
        let source = fi::FI_ADDR_NOTAVAIL;
        Completion { context: 0, flags: 0, length: 0, buffer: 0, data: 0, tag: 0, source }
    }
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure<'a> {
    /// `FI_E*`.
    pub error: u32,
    /// Number of bytes of the message that had no room (`olen`).
    pub excess: usize,
    /// The reason for people.
    pub text: &'a str,
}
