// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messenger: point-to-point messages over the ports of [`crate::transport`]. Tag matching, the headers on the wire,
//! and one state machine for each protocol.
//!
//! Knows no adapter and no MPI library: the caller posts what these parts decide, reads and registers memory, and reports
//! completions. Called by the PML (`plugin-abi/src/pml`). Grade and threads: in each file; none has a lock.
//!
//! | file | what |
//! |---|---|
//! | `matching/` | tag matching: which receive takes which message |
//! | `header.rs` | the headers on the wire |
//! | `rendezvous/` | long messages: read by the receiver, or sent as copies |
//! | `flow_control.rs` | when a message is announced though it is short, or is not sent yet |
//! | `failover.rs` | the order of messages that move to another port |
//! | `link.rs` | how a peer is reached: a port and its endpoint, shared memory, or oneself |
//! | `transfer_id.rs` | the numbers by which one process names a request to another |
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
//! S and R are numbers of `transfer_id.rs`, given by the sender and by the receiver.

pub mod failover;
pub mod flow_control;
pub mod header;
pub mod link;
pub mod matching;
pub mod rendezvous;
pub mod transfer_id;
