// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes of other jobs, met by `MPI_Comm_spawn`, `_connect` or `_accept`: finds those with no common communicator.
//!
//! Used by `pml/context.rs`, which ends the connections to them. Grade: setup. Threads: the owner's. Tests: below.

use std::collections::HashMap;

use super::route::Route;
use crate::peer::PeerName;

/// Processes of other jobs that share a communicator with this one, or from which it has parted.
#[derive(Debug, Default)]
pub struct Foreign {
    /// Whether this process has ever met one.
    pub is_met: bool,
    /// Members of each communicator.
    members: HashMap<u32, Box<[PeerName]>>,
    /// Number of communicators of each process.
    counts: HashMap<PeerName, u32>,
    /// Routes to the processes from which this one has parted; their connections may still exist.
    pub parted: HashMap<PeerName, Vec<Route>>,
}

impl Foreign {
    /// Notes the members of a new communicator that are of other jobs.
    pub fn join(&mut self, context: u32, members: Box<[PeerName]>) {
        for name in &members {
            *self.counts.entry(*name).or_default() += 1;
        }
        self.members.insert(context, members);
    }

    /// Removes a communicator. Returns the members that are in no other one.
    pub fn leave(&mut self, context: u32) -> Vec<PeerName> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leave_returns_a_process_when_the_last_communicator_with_it_goes() {
        let mut foreign = Foreign::default();
        let name = |rank| PeerName { job: 9, rank };
        foreign.join(5, [name(0), name(1)].into());
        foreign.join(6, [name(1)].into());
        assert_eq!(foreign.leave(5), [name(0)]);
        assert_eq!((foreign.leave(7), foreign.leave(5)), (vec![], vec![]));
        assert_eq!(foreign.leave(6), [name(1)]);
        assert!(foreign.counts.is_empty() && foreign.members.is_empty());
    }
}
