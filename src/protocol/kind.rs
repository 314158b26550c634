// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kinds of message, as 5 bits of the transport's tag say them.
//!
//! Hot: plain values. Tests: none.

/// What a message is. A value that is none of these is of another version, or damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind(pub u8);

impl Kind {
    /// A whole message of MPI's.
    pub const EAGER: Kind = Kind(0);
    /// The same, and its sender waits to hear that it was matched.
    pub const SYNCHRONOUS: Kind = Kind(1);
    /// A message that its receiver is to fetch or to ask for.
    pub const ANNOUNCED: Kind = Kind(2);
    /// The receiver asks for copies.
    pub const WANTED: Kind = Kind(3);
    /// A copy of some of the bytes.
    pub const PIECE: Kind = Kind(4);
    /// The receiver has what it wants.
    pub const FINISHED: Kind = Kind(5);
}
