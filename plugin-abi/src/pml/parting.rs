// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes of other jobs, from spawn, connect or accept: ends the connections to one with its last communicator.
//!
//! Without a common communicator nothing can be sent to a process, and it may end without notice. So this process parts
//! from it (`Port::part`), and forgets it when its connections have gone; until then the two can meet again. Called by
//! `context`. Grade: setup. Threads: the one that has entered the PML, and no port. Tests: `connect_cycles.c`
//! in `hw-tests/mpi`.

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
