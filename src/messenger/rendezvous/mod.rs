// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rendezvous: how the bytes of an announced message travel once a receive has matched it. The receiver reads them from
//! the sender's memory (`read.rs`), or the sender sends copies (`fragments.rs`, whose state machine is `copies.rs`).

pub mod copies;
pub mod fragments;
pub mod read;

use super::transfer_id::TransferId;

/// A step of a long message, for the flight recorder; both sides know the message by the sender's number.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Sender: the message is announced by this number.
    Announced(TransferId),
    /// Sender: the receiver has all the data that it wants, or wants copies.
    Answered {
        /// Number of the message.
        number: TransferId,
        /// Whether it wants copies.
        wants_copies: bool,
    },
    /// Receiver, which has noted the match: the transfer of so many bytes begins.
    Begins(TransferId, u64),
    /// Receiver: the bytes were read.
    Fetched(TransferId, u64),
    /// Receiver: the bytes arrived as copies, which do not name the message.
    Copied,
}
