// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes of other jobs, from spawn, connect or accept: ends the connections to one with its last communicator.
//!
//! Without a common communicator nothing can be sent to a process, and it may end without notice. So this process parts
//! from it (`Port::part`), and forgets it when its connections have gone; until then the two can meet again. Called by
//! `context`. Grade: setup. Threads: the one that has entered the PML, and no port. Tests: below, and
//! `connect_cycles.c` in `hw-tests/mpi`.

use std::collections::HashMap;

use engine::messenger::link::Link;
use engine::messenger::rails::Sent;
use engine::peer::PeerName;
use ibex_ffi::openmpi::process::Process;
use ibex_ffi::openmpi::sys;

use super::instance::{Pml, Rail, State};
use super::rails;
use crate::runtime::modex;

/// Notes whether a new process belongs to another job.
pub(crate) fn add(pml: &Pml, process: Process) {
    if Process::me().is_some_and(|me| me.name().job != process.name().job)
        && let Some(mut state) = pml.enter()
    {
        state.foreign.is_met = true;
    }
}

/// Cancels the parting from the members of a new communicator.
///
/// # Safety
/// P4: `comm` is a communicator that Open MPI has filled in.
pub(crate) unsafe fn joined(pml: &Pml, state: &mut State, comm: *mut sys::ompi_communicator_t, context: u32) {
    if !state.foreign.is_met {
        return;
    }
    let Some(me) = Process::me().map(|me| modex::from_openmpi(me.name())) else { return };
    // SAFETY: P4: `comm` is filled in, and has these ranks in its peers' group.
    let names =
        unsafe { 0..sys::ibex_comm_members(comm, 1) }.map(|rank| unsafe { sys::ibex_comm_member(comm, 1, rank) });
    let names = names.map(|name| PeerName { job: (name >> 32) as u32, rank: name as u32 });
    let members: Box<[PeerName]> = names.filter(|name| name.job != me.job).collect();
    if members.is_empty() {
        return;
    }
    for name in &members {
        for link in state.foreign.parted.remove(name).unwrap_or_default() {
            if let Some(mut port) = pml.rails().get(link.rail()).and_then(Rail::enter) {
                port.rejoin(link.to());
            }
        }
    }
    state.foreign.join(context, members);
}

/// Parts from members of a removed communicator that share no other one with this process.
pub(crate) fn left(pml: &Pml, state: &mut State, context: u32) {
    if !state.foreign.is_met {
        return;
    }
    for name in state.foreign.leave(context) {
        let links = rails::part(state, name);
        for link in &links {
            if let Some(mut port) = pml.rails().get(link.rail()).and_then(Rail::enter) {
                port.part(link.to());
            }
        }
        state.foreign.parted.insert(name, links);
    }
    sweep(pml, state);
}

/// Forgets processes whose connections have gone since the parting.
fn sweep(pml: &Pml, state: &mut State) {
    let has_gone = |link: &Link| {
        let port = pml.rails().get(link.rail()).and_then(Rail::enter);
        port.is_none_or(|port| port.has_gone(link.to()))
    };
    let gone: Vec<_> = state.foreign.parted.extract_if(|_, links| links.iter().all(has_gone)).collect();
    for (name, links) in gone {
        rails::remove(state, name);
        for link in links {
            if let Some(rail) = pml.rails().get(link.rail())
                && let Some(mut port) = rail.enter()
            {
                *rail.sent(&mut port, link.to()) = Sent::default();
            }
        }
    }
}

/// Processes of other jobs that share a communicator with this one, or were parted from.
#[derive(Default)]
pub(crate) struct Foreign {
    /// Whether this process has ever met one.
    pub(crate) is_met: bool,
    /// Members of each communicator.
    members: HashMap<u32, Box<[PeerName]>>,
    /// Number of communicators of each process.
    counts: HashMap<PeerName, u32>,
    /// Links to processes that were parted from; their connections may still exist.
    pub(crate) parted: HashMap<PeerName, Vec<Link>>,
}

impl Foreign {
    pub(crate) fn join(&mut self, context: u32, members: Box<[PeerName]>) {
        for name in &members {
            *self.counts.entry(*name).or_default() += 1;
        }
        self.members.insert(context, members);
    }

    /// Removes a communicator. Returns the members that are in no other one.
    pub(crate) fn leave(&mut self, context: u32) -> Vec<PeerName> {
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
    fn a_process_is_parted_from_when_the_last_communicator_with_it_goes() {
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
