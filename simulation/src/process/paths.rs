// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a process that listens for paths is told of its messages, with what `world/paths.rs` needs to judge that. Such
//! a process sends and receives as the PML does while a tool listens: no message bypasses the messenger, and a poll
//! delivers none within the port, but may defer one. Grade: test. Threads: one. Tests: those of the crate.

use ibex::messenger::host::{Data as _, Process as _};
use ibex::messenger::path_taken::PathTaken;

use super::{Handle, Process, endpoints, name};

/// What a process is told of the path of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReportedPath {
    pub(crate) path: PathTaken,
    /// Length of the message, bytes.
    pub(crate) length: usize,
    /// Length of the request's data, bytes, and whether it has gaps.
    pub(crate) room: usize,
    pub(crate) has_gaps: bool,
    /// Rank of the process to which the queue pair leads, if the port has this queue pair.
    pub(crate) peer: Option<u32>,
    /// Number of ports that are connected to the sender; of a receive that knows its message.
    pub(crate) connected: usize,
}

impl Process {
    /// Notes a path that tools are told, if the process listens.
    pub(super) fn note_path(&mut self, request: Handle, length: usize, path: PathTaken) {
        if self.paths.is_none() {
            return;
        }
        let known = self.requests.get(request);
        let (number, source) = (known.number, known.outcome.map(|outcome| outcome.source as u32));
        let (room, has_gaps) = (known.core.data.length(), !known.core.data.is_contiguous());
        let connected = source.map_or(0, |source| self.connected(source));
        let told = ReportedPath { path, length, room, has_gaps, peer: self.peer_by(path), connected };
        self.paths.iter_mut().for_each(|paths| paths.push((number, told)));
    }

    /// Returns the rank of the process to which the queue pair of a path leads.
    fn peer_by(&self, path: PathTaken) -> Option<u32> {
        let port = self.shared.enter_port(path.port as usize)?;
        let is_its = |(to, _): &_| port.queue_pair(*to) == Some(path.queue_pair);
        endpoints(&port).find(is_its).map(|(_, name)| name.rank)
    }

    /// Returns the number of ports that are connected to a process.
    pub(crate) fn connected(&self, other: u32) -> usize {
        let is_connected = |rail: &usize| {
            let mut port = self.shared.port(*rail);
            let to = port.endpoint(name(other)).filter(|to| port.queue_pair(*to).is_some());
            to.is_some_and(|to| port.is_ready(to))
        };
        (0..self.settings.rails).filter(is_connected).count()
    }
}
