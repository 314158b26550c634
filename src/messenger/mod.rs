// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messenger: point-to-point messages over the ports of [`crate::transport`].
//!
//! - [`send`] chooses the protocol of a message; [`receive`] hands an arrived message to its protocol;
//!   [`receive::search`] finds its receive, or stores it, and [`receive::delivery`] delivers it.
//! - Protocols: eager, for messages that are sent whole ([`send`]; [`receive::delivery`] copies them to the receive),
//!   [`rendezvous`] of announced messages, [`flow_control`], and [`loopback`] within the process. [`header`] has the
//!   formats on the wire.
//! - [`rails`] sends by the ports of the process and by shared memory, with send buffers and failover.
//! - Records: [`matching`] of tags, [`request`], the [`route`] to a peer, and [`dynamic_processes`]. For tools:
//!   [`path_taken`], and [`events`], which raises all events.
//!
//! It knows no MPI library: its [`host`] chooses the envelope by which messages are matched, lends its ports and the
//! queues of its communicators, registers memory, and reports completions. A function gets the state of the host, which
//! its thread has entered, and the process, which threads share. Called by the PML (`plugin-abi/src/pml`). Grades and
//! threads: in each file.
//!
//! A process sends a message up to the eager limit with its header, and announces a longer one: the receiver reads it
//! and sends `Finished`, or asks for copies if the data on either side has gaps or cannot be registered. An
//! announcement with address 0 says that the receiver cannot read the message; no memory has that address.
//! ARCHITECTURE.md, "The PML", has a diagram of each protocol.

use std::collections::VecDeque;

use dynamic_processes::DynamicProcesses;
use events::Completed;
use flow_control::state::Flow;
use host::Host;
use matching::Contexts;
use rails::Rails;
use receive::arrived::Arrived;
use request::transfer_id::Transfers;

pub mod dynamic_processes;
pub mod events;
pub mod flow_control;
pub mod header;
pub mod host;
mod loopback;
pub mod matching;
pub mod path_taken;
pub mod rails;
pub mod receive;
pub mod rendezvous;
pub mod request;
pub mod route;
pub mod send;

#[cfg(test)]
mod tests;

/// The messenger's own part of the state that a thread has when it has entered the host.
pub struct State<H: Host> {
    /// The communicators, and the messages that arrived before their communicator was added.
    pub contexts: Contexts<H::Communicator, (H::Envelope, Arrived)>,
    /// Transfers that have begun and not ended.
    pub transfers: Transfers<H::Handle>,
    /// Flow control.
    pub flow: Flow<H::Handle>,
    /// Processes of other jobs.
    pub dynamic_processes: DynamicProcesses,
    /// The rails: send buffers, peers.
    pub rails: Rails<H>,
    /// Sends whose next fragment waits for a send buffer.
    pub starved: VecDeque<H::Handle>,
    /// Completion that is handled now, for the events that it causes.
    pub completed: Option<Completed>,
}

impl<H: Host> State<H> {
    /// Makes the state of a process without messages.
    pub fn new(flow: Flow<H::Handle>, rails: Rails<H>) -> Self {
        let (contexts, transfers) = (Contexts::new(), Transfers::default());
        let dynamic_processes = DynamicProcesses::default();
        State { contexts, transfers, flow, dynamic_processes, rails, starved: VecDeque::new(), completed: None }
    }
}
