// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes of other jobs, met by `MPI_Comm_spawn`, `_connect` or `_accept`.
//!
//! Two processes without a common communicator cannot send to each other, and either may end without notice. So this
//! process parts from the other (`Port::part`) when their last communicator goes; a new communicator cancels the
//! parting. With several ports both go on counting each other's messages: only one of them may have noticed meanwhile
//! that a connection has gone. Called by `pml/module/context.rs`. Grade: setup. Threads: the one that has entered the
//! messenger, and no port. Tests: below, `simulation/src/tests/meetings.rs`, and `connect_cycles.c` in `hw-tests/mpi`.

use std::collections::HashMap;

use super::host::{PortHost, Process};
use super::rails::{failover, routes};
use crate::peer::PeerName;

/// Processes of other jobs that share a communicator with this one.
#[derive(Debug, Default)]
pub struct DynamicProcesses {
    /// Whether there has ever been one.
    pub is_met: bool,
    /// Members of each communicator.
    members: HashMap<u32, Box<[PeerName]>>,
    /// Number of communicators of each process.
    counts: HashMap<PeerName, u32>,
}

impl DynamicProcesses {
    /// Notes the members of a new communicator that are of other jobs.
    fn join(&mut self, context: u32, members: Box<[PeerName]>) {
        for name in &members {
            *self.counts.entry(*name).or_default() += 1;
        }
        self.members.insert(context, members);
    }

    /// Removes a communicator. Returns the members that are in no other one.
    fn leave(&mut self, context: u32) -> Vec<PeerName> {
        let members = self.members.remove(&context).unwrap_or_default();
        let is_last = |name: &PeerName| {
            let Some(count) = self.counts.get_mut(name) else { return false };
            *count -= 1;
            let is_last = *count == 0;
            if is_last {
                self.counts.remove(name);
            }
            is_last
        };
        members.into_iter().filter(is_last).collect()
    }
}

/// Notes the members of a new communicator that are of other jobs, and cancels the parting from them.
pub fn joined<H: PortHost>(process: &H::Process, host: &mut H, context: u32, members: Box<[PeerName]>) {
    if members.is_empty() {
        return;
    }
    for name in &members {
        for rail in 0..process.rail_count() {
            if let Some(mut port) = process.enter_port(rail)
                && let Some(peer) = port.endpoint(*name).filter(|peer| port.is_forgotten(*peer))
            {
                port.rejoin(peer);
                port.sent(peer).is_given_up = false;
            }
        }
        failover::met_again(process, host, *name);
    }
    host.messenger().dynamic_processes.join(context, members);
}

/// Parts from members of a removed communicator that share no other one with this process.
pub fn left<H: PortHost>(process: &H::Process, host: &mut H, context: u32) {
    if !host.messenger().dynamic_processes.is_met {
        return;
    }
    for name in host.messenger().dynamic_processes.leave(context) {
        for route in routes::part(process, host, name) {
            if let Some(mut port) = process.enter_port(route.rail()) {
                port.part(route.to());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leave_returns_a_process_when_the_last_communicator_with_it_goes() {
        let mut processes = DynamicProcesses::default();
        let name = |rank| PeerName { job: 9, rank };
        processes.join(5, [name(0), name(1)].into());
        processes.join(6, [name(1)].into());
        assert_eq!(processes.leave(5), [name(0)]);
        assert_eq!((processes.leave(7), processes.leave(5)), (vec![], vec![]));
        assert_eq!(processes.leave(6), [name(1)]);
        assert!(processes.counts.is_empty() && processes.members.is_empty());
    }
}
