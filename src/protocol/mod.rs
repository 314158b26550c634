// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the bytes of a message travel: what processes say to each other, and the state machine of each protocol.
//!
//! Knows no MPI and no adapter: the caller sends and receives what stands here, reads and registers. Version 1; all numbers are
//! little-endian.
//!
//! | file | what |
//! |---|---|
//! | `kind.rs` | the kinds of message, which the tag of the transport carries |
//! | `header.rs` | what each kind begins with |
//! | `transfers.rs` | the numbers by which one process names a transfer to another |
//! | `reading.rs` | the receiver reads from the sender's memory |
//! | `pieces.rs` | the sender sends copies, piece by piece |
//!
//! A message of at most the eager limit goes with its header, and is done. A larger one is announced; its receiver reads it and says
//! so, or asks for copies where either side's data has gaps or cannot be registered:
//!
//! ```text
//! eager         Eager(envelope) bytes ------------>
//! synchronous   Synchronous(envelope, S) bytes --->              matched
//!               <------------------------ Finished(S)
//! by read       Announced(envelope, S, place) ---->              matched
//!               <============ reads =============
//!               <------------------------ Finished(S)
//! by copies     Announced(envelope, S) ----------->              matched
//!               <---------------- Wanted(S, R, bytes)
//!               Piece(R) bytes ...  -------------->
//! ```
//!
//! S and R are numbers of `transfers.rs`, the sender's and the receiver's.

pub mod header;
pub mod kind;
pub mod pieces;
pub mod reading;
pub mod transfers;
