// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pml_add_procs`, `pml_del_procs`, `pml_add_comm` and `pml_del_comm`: add and remove processes and communicators.
//!
//! Open MPI calls `pml_del_comm` when the last reference to a communicator goes, or in `MPI_Finalize` even if requests
//! are pending, or never. So `pml_del_comm` drops unexpected messages, and `pmlm_finalize` drops the rest. Open MPI
//! reuses context numbers. Grade: setup. Threads: any. Tests: `hw-tests/mpi`, such as `connect_cycles.c`.

use std::ffi::c_int;
use std::ptr::null_mut;

use engine::events::{self, CommunicatorCreated, CommunicatorFreed, Payload, members};
use engine::messenger::dynamic_processes;
use engine::messenger::flow_control;
use engine::messenger::rails::routes;
use engine::messenger::receive::search;
use ibex_ffi::openmpi::process::Process;
use ibex_ffi::openmpi::sys;

use super::{Answer, Code, answer, enter, there};
use crate::pml::communicator::{Comm, Communicator};
use crate::pml::instance::{Pml, Rail, pml};
use crate::pml::peers;
use crate::pml::progress::leave;
use crate::pml::tools::listening::follow;
use crate::runtime::entry::Argument;
use crate::runtime::watch::SAFETY;
use crate::runtime::{listeners, modex};
use crate::tool;

/// Open MPI calls it before any traffic.
pub(crate) extern "C" fn pml_add_comm(comm: Comm) -> c_int {
    answer("pml_add_comm", || {
        let pml = there()?;
        let first = pml.rails().first().ok_or(Code::NOT_AVAILABLE)?;
        comm.set_part(Box::leak(Communicator::new(comm, first.entry(), comm.peers())));
        created(comm);
        // SAFETY: M4: a new communicator; `listeners::ends` is called before it goes.
        unsafe { listeners::begins(comm.raw()) };
        add(pml, comm).inspect_err(|_| {
            // SAFETY: M4: it lives, and nothing is entered.
            unsafe { listeners::ends(comm.raw()) };
            if let Some(communicator) = take_part(comm) {
                freed(communicator.context);
            }
        })
    })
}

fn add(pml: &Pml, comm: Comm) -> Answer {
    let mut state = enter(pml)?;
    let (added, context) = (comm.part(), comm.context());
    // SAFETY: P3: the PML is entered.
    unsafe { follow(added) };
    let kept = state.messenger.contexts.add(context, added).ok_or(Code::ERROR)?;
    if state.messenger.dynamic_processes.is_met
        && let Some(me) = Process::me()
    {
        let members = comm.members(true).filter(|name| name.job != me.name().job).collect();
        dynamic_processes::joined(pml, &mut *state, context, members);
    }
    search::deliver_early(pml, &mut *state, context, kept);
    leave(pml, state);
    Ok(())
}

/// Takes the PML's part out of a communicator. `contexts` does not refer to it, or does no longer.
fn take_part(comm: Comm) -> Option<Communicator> {
    // SAFETY: P1: `pml_add_comm` has leaked it, and it was in `c_pml_comm` until now; so it is taken back once.
    comm.set_part(null_mut()).map(|communicator| *unsafe { Box::from_raw(communicator.as_ptr()) })
}

pub(crate) extern "C" fn pml_del_comm(comm: Comm) -> c_int {
    answer("pml_del_comm", || {
        let pml = there()?;
        // SAFETY: M4: Open MPI's communicator still lives.
        unsafe { listeners::ends(comm.raw()) };
        let mut state = enter(pml)?;
        let was_there = comm.if_added().map(|communicator| communicator.context);
        if let Some(context) = was_there {
            // First, because `contexts` has a reference to it.
            state.messenger.contexts.remove(context);
            // Posted receives stay as they are, so that MPI can still free them.
            let messages = take_part(comm).map(|communicator| communicator.into_queues().into_messages());
            for message in messages.unwrap_or_default() {
                flow_control::give_up(pml, &mut *state, &message.message);
            }
            dynamic_processes::left(pml, &mut *state, context);
        }
        leave(pml, state);
        // Last, because once this has returned another thread may get the same context number.
        was_there.into_iter().for_each(freed);
        Ok(())
    })
}

/// Argument of Open MPI: its array of processes, which live until `MPI_Finalize`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Processes(*mut *mut sys::ompi_proc_t);

// SAFETY: the same pointer.
unsafe impl Argument<*mut *mut sys::ompi_proc_t> for Processes {}

impl Processes {
    /// # Safety
    /// M4: the array has `count` elements.
    unsafe fn first<'call>(self, count: usize) -> &'call [*mut sys::ompi_proc_t] {
        // SAFETY: M4, as this function requires.
        unsafe { std::slice::from_raw_parts(self.0, count) }
    }
}

fn each(processes: &[*mut sys::ompi_proc_t]) -> impl Iterator<Item = Process> {
    // SAFETY: M4: elements of `Processes`.
    processes.iter().filter_map(|process| unsafe { Process::from_raw(process.cast()) })
}

/// Open MPI calls it at start, and after spawn, connect or accept, perhaps for known processes again.
pub(crate) extern "C" fn pml_add_procs(processes: Processes, count: usize) -> c_int {
    answer("pml_add_procs", || {
        // Not earlier: MPI_Init sets up MPI's own error codes shortly before.
        tool::explain_codes();
        // SAFETY: M4: `count` processes.
        let all = unsafe { processes.first(count) };
        for process in each(all) {
            if !peers::is_same(process) {
                return Err(Code::UNREACHABLE);
            }
            // A process of another job.
            if Process::me().is_some_and(|me| me.name().job != process.name().job)
                && let Some(mut state) = pml().and_then(Pml::enter)
            {
                state.messenger.dynamic_processes.is_met = true;
            }
        }
        // SAFETY: M4: `count` processes; the function reports those with another PML, and does not keep the name.
        let code = unsafe { sys::mca_pml_base_pml_check_selected(c"ibex".as_ptr(), processes.0, count) };
        Code::answer(code).inspect_err(|_| peers::say_of_rank_0())?;
        if let Some(pml) = pml() {
            // SAFETY: M4: processes, which live until MPI_Finalize.
            unsafe { peers::add_local(pml, all) };
        }
        Ok(())
    })
}

pub(crate) extern "C" fn pml_del_procs(processes: Processes, count: usize) -> c_int {
    answer("pml_del_procs", || {
        let Some(pml) = pml() else { return Ok(()) };
        // SAFETY: M4: `count` processes.
        let all = unsafe { processes.first(count) };
        for process in each(all) {
            let peer = modex::from_openmpi(process.name());
            let Some(mut state) = pml.enter() else { continue };
            let routes = routes::remove(pml, &mut *state, peer);
            drop(state);
            for route in routes {
                if let Some(mut port) = pml.rails().get(route.rail()).and_then(Rail::enter) {
                    port.forget(route.to());
                }
            }
        }
        // SAFETY: M4: processes, which live until MPI_Finalize.
        unsafe { peers::remove_local(pml, all) };
        Ok(())
    })
}

/// Reports a new communicator, before any event of its messages. The caller has entered neither PML nor port, because
/// callbacks run here.
fn created(comm: Comm) {
    if !events::interest().has(CommunicatorCreated::TYPE) {
        return;
    }
    let (context, rank, kind) = (comm.context(), comm.rank(), u32::from(comm.is_inter()));
    members::created(SAFETY, (context, kind, rank), false, comm.members(false));
    if comm.is_inter() {
        members::created(SAFETY, (context, kind, rank), true, comm.members(true));
    }
}

/// Reports the end of a communicator, after all events of its messages.
fn freed(context: u32) {
    events::raise(SAFETY, || CommunicatorFreed { context });
}
