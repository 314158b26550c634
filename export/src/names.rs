// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of protocols, reasons, incidents and ports, the same in all formats. Called by the formats. Path: each
//! message. Threads: plain data. Tests: below.

use ibex_messages::{IncidentKind, Job, OperationKind, Port, Protocol, Queue, Reason};

/// Protocols in the order of their numbers in formats, with their names.
pub(crate) const PROTOCOLS: [(Protocol, &str); 6] = [
    (Protocol::Inline, "inline"),
    (Protocol::Copied, "copied"),
    (Protocol::Read, "read"),
    (Protocol::Fragments, "fragments"),
    (Protocol::SharedMemory, "shared memory"),
    (Protocol::Loopback, "loopback"),
];

pub(crate) fn protocol(protocol: Protocol) -> &'static str {
    PROTOCOLS[protocol as usize].1
}

pub(crate) const REASONS: [(Reason, &str); 8] = [
    (Reason::Size, "size"),
    (Reason::Synchronous, "synchronous"),
    (Reason::Gaps, "gaps"),
    (Reason::NotRegistered, "not registered"),
    (Reason::HeldBack, "held back"),
    (Reason::Adapter, "adapter"),
    (Reason::Loopback, "loopback"),
    (Reason::SameHost, "same host"),
];

pub(crate) fn reason(reason: Reason) -> &'static str {
    REASONS[reason as usize].1
}

pub(crate) const INCIDENTS: [(IncidentKind, &str); 7] = [
    (IncidentKind::QueuedBegin, "request queued"),
    (IncidentKind::QueuedEnd, "queued request posted"),
    (IncidentKind::ReceiverNotReady, "receiver not ready"),
    (IncidentKind::RegistrationMiss, "memory registered"),
    (IncidentKind::RegistrationEvict, "memory deregistered"),
    (IncidentKind::DeviceAsync, "event of the adapter"),
    (IncidentKind::PortAsync, "event of the port"),
];

pub(crate) fn incident(kind: IncidentKind) -> &'static str {
    INCIDENTS[kind as usize].1
}

pub(crate) fn operation(kind: OperationKind) -> &'static str {
    match kind {
        OperationKind::Put => "put",
        OperationKind::Get => "get",
        OperationKind::Atomic => "atomic",
    }
}

pub(crate) fn queue(queue: Queue) -> &'static str {
    match queue {
        Queue::Posted => "posted",
        Queue::Unexpected => "unexpected",
    }
}

pub(crate) fn search(queue: Queue) -> &'static str {
    match queue {
        Queue::Posted => "search posted queue",
        Queue::Unexpected => "search unexpected queue",
    }
}

/// Returns adapter and number of the port: `mlx5_0:1`.
pub(crate) fn port(port: &Port) -> String {
    format!("{}:{}", port.device, port.number)
}

/// Returns a communicator's name, or its number on the wire.
pub(crate) fn communicator(job: &Job, place: u32) -> String {
    match job.communicators.get(place as usize) {
        Some(communicator) if !communicator.name.is_empty() => communicator.name.clone(),
        Some(communicator) => format!("context {}", communicator.context),
        None => format!("communicator {place}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_each_in_its_list_is_its_number() {
        assert!(PROTOCOLS.iter().enumerate().all(|(place, (protocol, _))| *protocol as usize == place));
        assert!(REASONS.iter().enumerate().all(|(place, (reason, _))| *reason as usize == place));
        assert!(INCIDENTS.iter().enumerate().all(|(place, (incident, _))| *incident as usize == place));
    }
}
