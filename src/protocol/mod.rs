// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the bytes of a message travel: what two processes say to each other, and the state machine of each protocol.
//!
//! Knows no adapter and no MPI library: the caller sends and receives what stands here, reads and registers. Called by
//! what carries messages of its own matching ([`crate::matching`]).
//!
//! | file | what |
//! |---|---|
//! | `header.rs` | how it looks on the wire |
//! | `transfers.rs` | the numbers by which one process names a request to another |
//! | `reading.rs` | the receiver reads from the sender's memory |
//! | `striping.rs` | the same over several paths |
//! | `stream.rs` | the order of messages that move to another port |
//! | `pieces.rs` | the sender sends copies, piece by piece |
//! | `flow_control.rs` | when a message is announced though it is short, or is not sent yet |
//!
//! A message of at most the eager limit goes with its header, and is done. A larger one is announced; its receiver
//! reads it and says so, or asks for copies where either side's data has gaps or cannot be registered. No memory has
//! the address 0: an announcement with it says that the message cannot be read.
//!
//! ```text
//! eager         Eager(match) bytes ----------------------->
//! synchronous   Synchronous(match, S) bytes -------------->    matched
//!               <------------------------- Acknowledge(S)
//! by read       Announce(match, S, memory) --------------->    matched
//!               <================= reads ==================
//!               <-------------------- Finished(S, length)
//! over several  AnnounceKeyed(match, S, memory) keys ----->    matched
//! paths         <============ reads, on each path ==========
//!               <-------------------- Finished(S, length)
//! by copies     Announce(match, S, nothing) -------------->    matched
//!               <------------------ ClearToSend(S, R, length)
//!               Fragment(R, offset) bytes ... ------------>
//! ```
//!
//! S and R are numbers of `transfers.rs`, the sender's and the receiver's.

pub mod flow_control;
pub mod header;
pub mod pieces;
pub mod reading;
pub mod stream;
pub mod striping;
pub mod transfers;
