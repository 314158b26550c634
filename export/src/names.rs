// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of searches, ports and communicators, the same in all formats. Called by the formats. Path: each message.
//! Threads: plain data. Tests: the formats'.

use ibex_messages::{Job, Port, Queue};

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
