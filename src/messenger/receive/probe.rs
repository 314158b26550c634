// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probes, and the receive of the message that a matched probe has taken out.
//!
//! Called by the host for a program's probes. Grade: pending. Threads: the one that has entered the messenger. Tests:
//! `messenger/tests/searches.rs`, `simulation`, and `pt2pt_matching.c` in `hw-tests/mpi`.

use super::delivery;
use crate::messenger::events::messages;
use crate::messenger::flow_control;
use crate::messenger::header::WireEnvelope;
use crate::messenger::host::{Host, PeerOf, TagOf};
use crate::messenger::matching::{Envelope, MessageHandle};

/// The message that a probe has found.
#[derive(Clone, Copy, Debug)]
pub struct Found<E = Envelope> {
    /// Its sender and tag.
    pub envelope: E,
    /// Its length, bytes.
    pub length: usize,
    /// Its handle, if the probe has taken it out.
    pub message: Option<MessageHandle>,
}

/// Looks for an unexpected message with this source and tag, which may be wildcards. `takes`: takes it out, for
/// [`receive`].
pub fn probe<H: Host>(
    process: &H::Process,
    host: &mut H,
    of: H::Communicator,
    (source, tag): (PeerOf<H>, TagOf<H>),
    takes: bool,
) -> Option<Found<H::Envelope>> {
    let pattern = H::Envelope::pattern(source, tag);
    let found = messages::probes(host, of, (source, tag), |host| {
        let (queues, lengths) = host.queues(of);
        if takes { queues.set_aside(lengths, pattern) } else { queues.probe(pattern) }
    });
    if found.is_none() {
        let context = host.number(of);
        flow_control::found_nothing(process, host, context);
    }
    found
}

/// Gives a receive the message that a matched probe has taken out. If the program has received it before, which MPI
/// forbids, finishes the receive without a message.
pub fn receive<H: Host>(process: &H::Process, host: &mut H, receive: H::Handle, message: MessageHandle) {
    let of = host.communicator(receive);
    let Some(message) = host.queues(of).0.take_aside(message) else { return host.finish(receive) };
    let core = host.core(receive);
    (core.peer, core.tag) = (message.envelope.source(), message.envelope.tag());
    messages::gets_aside(process, host, of, receive, &message);
    delivery::unexpected(process, host, receive, message.envelope, message.message);
}
