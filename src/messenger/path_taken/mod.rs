// SPDX-License-Identifier: MIT OR Apache-2.0
//! The path of a message, for tools: its protocol with the reason for it, its port and its queue pair.
//!
//! Protocol and reason follow from the data that decides how the message is sent. Two reasons travel in headers as
//! [`Reason::code`]: in the place of a memory key, why the message cannot be read; in `ClearToSend`, why the receiver
//! asks for copies of a readable one. Called by [`lookup`], and where the protocol is chosen. Grade: pending.
//! Threads: any. Plain data. Tests: below.

use super::header::{EAGER_SIZE, Memory};

pub mod lookup;

/// How the bytes of a message travel. Tools and traces know the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Protocol {
    /// Inside a work request.
    Inline,
    /// Eager: copied into a send buffer, and on the receiver's side out of a receive slot.
    Copied,
    /// Announced; the receiver reads it by RDMA.
    Read,
    /// Announced; the sender sends copied fragments.
    Fragments,
    /// Copied through the memory that the processes of a host share.
    SharedMemory,
    /// Copied within the process.
    Loopback,
}

/// Why a message travels by its protocol. Tools, traces and headers know the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Reason {
    /// The message's size.
    Size,
    /// Only traces of former versions have this reason.
    Synchronous,
    /// The sender's or the receiver's datatype has gaps.
    Gaps,
    /// The memory cannot be registered.
    NotRegistered,
    /// The receiver holds its senders back (flow control).
    HeldBack,
    /// The adapter does not support the better protocol, or no port is left that can read.
    Adapter,
    /// The process sends to itself.
    Loopback,
    /// The processes are of one host.
    SameHost,
}

impl Reason {
    /// Returns its number in a header.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The inverse of [`Self::code`], for the reasons that are sent in a header.
    pub fn of_code(code: u32) -> Option<Reason> {
        const SAID: [Reason; 5] =
            [Reason::Synchronous, Reason::Gaps, Reason::NotRegistered, Reason::HeldBack, Reason::Adapter];
        SAID.into_iter().find(|reason| reason.code() == code)
    }
}

/// How a message travels, as ibex reports it to tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathTaken {
    /// Its protocol.
    pub protocol: Protocol,
    /// Why by this protocol.
    pub reason: Reason,
    /// Index of the port among the ports of the process; [`PathTaken::NO_PORT`]: none.
    pub port: u32,
    /// Number of this side's queue pair; 0: none.
    pub queue_pair: u32,
    /// Number of ports that carry the message.
    pub rails: u32,
}

impl PathTaken {
    /// Value of `port` for a message that no port carries.
    pub const NO_PORT: u32 = u32::MAX;

    /// Path of a message to this process.
    pub const LOOPBACK: PathTaken = PathTaken::without_port(Protocol::Loopback, Reason::Loopback);

    /// Path by shared memory, whatever the protocol.
    pub const SHARED_MEMORY: PathTaken = PathTaken::without_port(Protocol::SharedMemory, Reason::SameHost);

    /// Makes the path of a message whose port is not known, or that no port carries.
    pub const fn without_port(protocol: Protocol, reason: Reason) -> Self {
        PathTaken { protocol, reason, port: PathTaken::NO_PORT, queue_pair: 0, rails: 0 }
    }
}

/// Returns protocol and reason of a message that is sent whole: `header` bytes, then `length` bytes of data. `inline`:
/// longest message inside a work request, bytes.
pub const fn at_once((header, length): (usize, usize), has_gaps: bool, inline: usize) -> (Protocol, Reason) {
    if header + length > inline {
        // `Adapter`: it takes not even a header inside a work request.
        return (Protocol::Copied, if inline < EAGER_SIZE { Reason::Adapter } else { Reason::Size });
    }
    if has_gaps { (Protocol::Copied, Reason::Gaps) } else { (Protocol::Inline, Reason::Size) }
}

/// Returns protocol and reason of an announced message that its receiver cannot read.
pub const fn unreadable(length: u64, why: Reason) -> (Protocol, Reason) {
    (if length == 0 { Protocol::Inline } else { Protocol::Fragments }, why)
}

/// [`unreadable`] for a receive of `room` bytes; `None` if the receiver may read the message.
pub const fn not_read(memory: &Memory, room: usize, has_gaps: bool) -> Option<(Protocol, Reason)> {
    match *memory {
        Memory::Unreadable { why, length } => Some(unreadable(length, why)),
        Memory::Readable { .. } if room == 0 => Some((Protocol::Read, Reason::Size)),
        Memory::Readable { .. } if has_gaps => Some((Protocol::Fragments, Reason::Gaps)),
        Memory::Readable { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_fits_goes_inside_its_work_request_and_any_other_is_copied_for_a_reason() {
        let how = |length, has_gaps, inline| at_once((12, length), has_gaps, inline);
        assert_eq!(how(8, false, 64), (Protocol::Inline, Reason::Size));
        assert_eq!(how(52, false, 64), (Protocol::Inline, Reason::Size));
        assert_eq!(how(53, false, 64), (Protocol::Copied, Reason::Size));
        assert_eq!(how(8, true, 64), (Protocol::Copied, Reason::Gaps));
        assert_eq!(how(53, true, 64), (Protocol::Copied, Reason::Size));
        assert_eq!(how(0, false, 0), (Protocol::Copied, Reason::Adapter));
    }

    #[test]
    fn the_announcement_or_the_receiver_gives_the_reason_against_a_read() {
        let held_back = Memory::Unreadable { why: Reason::HeldBack, length: 100 };
        assert_eq!(not_read(&held_back, 100, false), Some((Protocol::Fragments, Reason::HeldBack)));
        let empty = Memory::Unreadable { why: Reason::HeldBack, length: 0 };
        assert_eq!(not_read(&empty, 9, false), Some((Protocol::Inline, Reason::HeldBack)));
        let readable = Memory::Readable { key: 2, address: 4096, length: 100 };
        assert_eq!(not_read(&readable, 100, false), None);
        assert_eq!(not_read(&readable, 100, true), Some((Protocol::Fragments, Reason::Gaps)));
        assert_eq!(not_read(&readable, 0, false), Some((Protocol::Read, Reason::Size)));
    }

    #[test]
    fn of_code_returns_none_for_any_other_number() {
        for why in [Reason::Synchronous, Reason::Gaps, Reason::NotRegistered, Reason::HeldBack, Reason::Adapter] {
            assert_eq!(Reason::of_code(why.code()), Some(why));
        }
        for other in [Reason::Size.code(), Reason::Loopback.code(), Reason::SameHost.code(), 9, u32::MAX] {
            assert_eq!(Reason::of_code(other), None);
        }
    }
}
