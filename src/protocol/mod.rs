// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocols of point-to-point messages: their headers on the wire, and one state machine per protocol.
//!
//! Knows no adapter and no MPI library: the caller sends and receives the headers, reads memory and registers it.
//! Called by the layers that do their own matching ([`crate::matching`]).
//!
//! | file | what |
//! |---|---|
//! | `header.rs` | the headers on the wire |
//! | `transfers.rs` | the numbers by which one process names a request to another |
//! | `reading.rs` | the receiver reads from the sender's memory, over one path or several |
//! | `stream.rs` | the order of messages that move to another port |
//! | `pieces.rs` | the sender sends copies, piece by piece |
//! | `flow_control.rs` | when a message is announced though it is short, or is not sent yet |
//!
//! A message up to the eager limit is sent with its header. A longer one is announced: its receiver reads it and sends
//! `Finished`, or asks for copies if the data on either side has gaps or cannot be registered. An announcement with
//! address 0 says that the message cannot be read; no memory has that address.
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
//! S and R are numbers of `transfers.rs`, given by the sender and by the receiver.

pub mod flow_control;
pub mod header;
pub mod pieces;
pub mod reading;
pub mod stream;
pub mod transfers;
