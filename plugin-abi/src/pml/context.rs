// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pml_add_procs`, `pml_del_procs`, `pml_add_comm` and `pml_del_comm`: add and remove processes and communicators.
//!
//! Open MPI calls `pml_del_comm` when the last reference to a communicator goes, or in `MPI_Finalize` even if requests
//! are pending, or never. So `pml_del_comm` drops unexpected messages, and `pmlm_finalize` drops the rest. Open MPI
//! reuses context numbers. Grade: setup. Threads: any. Tests: below, and `hw-tests/mpi`, such as `connect_cycles.c`.
//!
//! **Processes of other jobs** come from spawn, connect or accept. Two processes without a common communicator cannot
//! send to each other, and either may end without notice. So this process parts from the other (`Port::part`) when
//! their last communicator goes, and forgets it when the connections have gone; a new communicator cancels the parting.

use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};

use engine::events::{self, CommunicatorCreated, CommunicatorFreed, Payload};
use engine::messenger::flow_control;
use engine::messenger::rails::Sent;
use engine::messenger::receive::search;
use engine::messenger::route::Route;
use engine::peer::PeerName;
use ibex_ffi::openmpi::process::Process;
use ibex_ffi::openmpi::{release, sys};

use super::communicator::Communicator;
use super::component;
use super::instance::{Pml, Rail, State, pml};
use super::ports::{local, rails};
use super::progress::leave;
use super::tools::listening::follow;
use crate::runtime::guard::fence;
use crate::runtime::watch::SAFETY;
use crate::runtime::{listeners, modex};
use crate::tool;

/// `pml_add_comm`: Open MPI calls it before any traffic.
pub(crate) unsafe extern "C" fn pml_add_comm(comm: *mut sys::ompi_communicator_t) -> c_int {
    fence("pml_add_comm", sys::OPAL_ERROR, || {
        let Some(pml) = pml() else { return sys::OPAL_ERR_NOT_AVAILABLE };
        // SAFETY: P4: Open MPI has filled the communicator in.
        let (peers, rank, context) = unsafe { (sys::ibex_comm_peers(comm), (*comm).c_my_rank, release::context(comm)) };
        let Some(first) = pml.rails().first() else { return sys::OPAL_ERR_NOT_AVAILABLE };
        let mut communicator = Communicator::new(first.entry(), peers as usize, rank, context);
        communicator.comm = comm;
        let communicator = NonNull::from(Box::leak(communicator));
        // SAFETY: P4: a new communicator; `pml_del_comm` or `is_not_followed` calls `listeners::ends` before it goes.
        unsafe {
            created(comm);
            listeners::begins(comm);
        }
        let Some(mut state) = pml.enter() else {
            // SAFETY: just leaked, and nobody else has it; P4: `comm` lives.
            unsafe { is_not_followed(comm, communicator) };
            return sys::OPAL_ERR_OUT_OF_RESOURCE;
        };
        // SAFETY: P1: just leaked; `pml_del_comm` takes it out of `contexts` before it goes.
        let added = unsafe { communicator.as_ref() };
        // SAFETY: P3; just leaked, so alive; P4: `comm` lives.
        unsafe { follow(added) };
        let Some(kept) = state.messenger.contexts.add(context, added) else {
            drop(state);
            // SAFETY: just leaked, and nobody else has it; P4: `comm` lives.
            unsafe { is_not_followed(comm, communicator) };
            return sys::OPAL_ERROR;
        };
        // SAFETY: P4: Open MPI has filled the communicator in.
        unsafe {
            (*comm).c_pml_comm = communicator.as_ptr().cast();
            joined(pml, &mut state, comm, context);
        }
        search::deliver_early(pml, &mut *state, context, kept);
        leave(pml, state);
        sys::OPAL_SUCCESS
    })
}

/// Undoes the first steps for a communicator that cannot be added. The caller has entered neither PML nor port.
///
/// # Safety
/// P4: Open MPI's communicator lives. The PML's was leaked, and nobody else has it.
unsafe fn is_not_followed(comm: *mut sys::ompi_communicator_t, communicator: NonNull<Communicator>) {
    // SAFETY: P4: `pml_add_comm` has leaked it, and nobody else has it.
    let communicator = unsafe { Box::from_raw(communicator.as_ptr()) };
    // SAFETY: P4: Open MPI's communicator lives, as this function requires.
    unsafe { listeners::ends(comm) };
    freed(communicator.context);
}

pub(crate) unsafe extern "C" fn pml_del_comm(comm: *mut sys::ompi_communicator_t) -> c_int {
    fence("pml_del_comm", sys::OPAL_ERROR, || {
        let Some(pml) = pml() else { return sys::OPAL_ERR_NOT_AVAILABLE };
        // SAFETY: P4: Open MPI's communicator still lives.
        unsafe { listeners::ends(comm) };
        let Some(mut state) = pml.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
        // SAFETY: P4: Open MPI's communicator still lives.
        let communicator = unsafe { std::mem::replace(&mut (*comm).c_pml_comm, null_mut()) };
        let mut was_there = None;
        if let Some(communicator) = NonNull::new(communicator.cast::<c_void>().cast::<Communicator>()) {
            // SAFETY: P1: alive until the next block frees it.
            let context = unsafe { communicator.as_ref() }.context;
            // First, because `contexts` has a reference to it.
            state.messenger.contexts.remove(context);
            // SAFETY: leaked by `pml_add_comm`, and taken out of `c_pml_comm` once, just now.
            let communicator = unsafe { Box::from_raw(communicator.as_ptr()) };
            was_there = Some(context);
            // Posted receives stay as they are, so that MPI can still free them.
            for message in communicator.into_queues().into_messages() {
                flow_control::give_up(pml, &mut *state, &message.message);
            }
            left(pml, &mut state, context);
        }
        leave(pml, state);
        // Last, because once this has returned another thread may get the same context number.
        if let Some(context) = was_there {
            freed(context);
        }
        sys::OPAL_SUCCESS
    })
}

/// `pml_add_procs`: Open MPI calls it at start, and after spawn, connect or accept, perhaps for known processes again.
pub(crate) unsafe extern "C" fn pml_add_procs(procs: *mut *mut sys::ompi_proc_t, count: usize) -> c_int {
    fence("pml_add_procs", sys::OPAL_ERROR, || {
        // Not earlier: MPI_Init sets up MPI's own error codes shortly before.
        tool::explain_codes();
        for index in 0..count {
            // SAFETY: P4: `count` processes, which live until MPI_Finalize.
            let Some(process) = (unsafe { Process::from_raw(procs.add(index).read().cast()) }) else { continue };
            if !component::is_same(process) {
                return sys::OPAL_ERR_UNREACH;
            }
            // A process of another job.
            if Process::me().is_some_and(|me| me.name().job != process.name().job)
                && let Some(mut state) = pml().and_then(Pml::enter)
            {
                state.foreign.is_met = true;
            }
        }
        // SAFETY: P4: `count` processes; the function reports those with another PML, and does not keep the name.
        let code = unsafe { sys::mca_pml_base_pml_check_selected(c"ibex".as_ptr(), procs, count) };
        if code != sys::OPAL_SUCCESS {
            component::say_of_rank_0();
            return code;
        }
        if let Some(pml) = pml() {
            // SAFETY: P4: `count` processes, which live until MPI_Finalize.
            unsafe { local::add(pml, std::slice::from_raw_parts(procs, count)) };
        }
        sys::OPAL_SUCCESS
    })
}

pub(crate) unsafe extern "C" fn pml_del_procs(procs: *mut *mut sys::ompi_proc_t, count: usize) -> c_int {
    fence("pml_del_procs", sys::OPAL_ERROR, || {
        let Some(pml) = pml() else { return sys::OPAL_SUCCESS };
        for index in 0..count {
            // SAFETY: P4: `count` processes, which live until MPI_Finalize.
            let Some(process) = (unsafe { Process::from_raw(procs.add(index).read().cast()) }) else { continue };
            let peer = modex::from_openmpi(process.name());
            let Some(mut state) = pml.enter() else { continue };
            let routes = rails::remove(&mut state, peer);
            drop(state);
            for route in routes {
                if let Some(mut port) = pml.rails().get(route.rail()).and_then(Rail::enter) {
                    port.forget(route.to());
                }
            }
        }
        // SAFETY: P4: `count` processes, which live until MPI_Finalize.
        unsafe { local::remove(pml, std::slice::from_raw_parts(procs, count)) };
        sys::OPAL_SUCCESS
    })
}

/// Cancels the parting from the members of a new communicator.
///
/// # Safety
/// P4: `comm` is a communicator that Open MPI has filled in.
unsafe fn joined(pml: &Pml, state: &mut State, comm: *mut sys::ompi_communicator_t, context: u32) {
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
        for route in state.foreign.parted.remove(name).unwrap_or_default() {
            if let Some(mut port) = pml.rails().get(route.rail()).and_then(Rail::enter) {
                port.rejoin(route.to());
            }
        }
    }
    state.foreign.join(context, members);
}

/// Parts from members of a removed communicator that share no other one with this process.
fn left(pml: &Pml, state: &mut State, context: u32) {
    if !state.foreign.is_met {
        return;
    }
    for name in state.foreign.leave(context) {
        let routes = rails::part(state, name);
        for route in &routes {
            if let Some(mut port) = pml.rails().get(route.rail()).and_then(Rail::enter) {
                port.part(route.to());
            }
        }
        state.foreign.parted.insert(name, routes);
    }
    sweep(pml, state);
}

/// Forgets processes whose connections have gone since the parting.
fn sweep(pml: &Pml, state: &mut State) {
    let has_gone = |route: &Route| {
        let port = pml.rails().get(route.rail()).and_then(Rail::enter);
        port.is_none_or(|port| port.has_gone(route.to()))
    };
    let gone: Vec<_> = state.foreign.parted.extract_if(|_, routes| routes.iter().all(has_gone)).collect();
    for (name, routes) in gone {
        rails::remove(state, name);
        for route in routes {
            if let Some(rail) = pml.rails().get(route.rail())
                && let Some(mut port) = rail.enter()
            {
                *rail.sent(&mut port, route.to()) = Sent::default();
            }
        }
    }
}

/// Members that one event reports: the ranks from `first` on are processes `process`, `process + stride`, ... of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u32,
    count: u32,
    process: u32,
    stride: i32,
    job: u32,
}

impl Run {
    /// Adds the process to the run if it is the next one. Returns whether it did.
    fn takes(&mut self, (job, process): (u32, u32)) -> bool {
        if job != self.job {
            return false;
        }
        let last = i64::from(self.process) + i64::from(self.stride) * i64::from(self.count - 1);
        let step = i64::from(process) - last;
        let Ok(stride) = i32::try_from(step) else { return false };
        if self.count > 1 && stride != self.stride {
            return false;
        }
        (self.stride, self.count) = (stride, self.count + 1);
        true
    }
}

/// Divides members (job, and rank in the job) into runs.
fn runs(members: impl Iterator<Item = (u32, u32)>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (first, (job, process)) in (0..).zip(members) {
        if !runs.last_mut().is_some_and(|run| run.takes((job, process))) {
            runs.push(Run { first, count: 1, process, stride: 0, job });
        }
    }
    runs
}

/// Reports a new communicator, before any event of its messages. One event covers members whose ranks in the job form
/// an arithmetic progression, so most communicators take one event. The caller has entered neither PML nor port,
/// because callbacks run here.
///
/// # Safety
/// P4: `comm` is a communicator that Open MPI has filled in.
unsafe fn created(comm: *mut sys::ompi_communicator_t) {
    if !events::interest().has(CommunicatorCreated::TYPE) {
        return;
    }
    // SAFETY: P4: `comm` is filled in, as this function requires.
    let (context, rank, is_inter) =
        unsafe { (release::context(comm), (*comm).c_my_rank, sys::ibex_comm_is_inter(comm) != 0) };
    for side in 0..=u32::from(is_inter) {
        let is_remote = side as i32;
        // SAFETY: P4: `comm` is filled in, as this function requires.
        let size = unsafe { sys::ibex_comm_members(comm, is_remote) };
        // SAFETY: P4: `comm` is filled in; the rank is below the size of the group.
        let member = |rank| unsafe { sys::ibex_comm_member(comm, is_remote, rank) };
        let members = (0..size).map(member).map(|name| ((name >> 32) as u32, name as u32));
        for Run { first, count, process, stride, job } in runs(members) {
            let (kind, size) = (u32::from(is_inter), size as u32);
            let event = CommunicatorCreated { context, kind, rank, size, side, first, count, process, stride, job };
            events::raise(SAFETY, || event);
        }
    }
}

/// Reports the end of a communicator, after all events of its messages.
fn freed(context: u32) {
    events::raise(SAFETY, || CommunicatorFreed { context });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns runs as the events report them: first, count, process, stride, job.
    fn told(members: &[(u32, u32)]) -> Vec<(u32, u32, u32, i32, u32)> {
        let all = runs(members.iter().copied());
        // Each member is in exactly one run, at its place.
        let again = all.iter().flat_map(|run| {
            (0..run.count).map(|at| {
                let process = i64::from(run.process) + i64::from(run.stride) * i64::from(at);
                (run.job, u32::try_from(process).expect("a rank"))
            })
        });
        assert_eq!(again.collect::<Vec<_>>(), members);
        all.iter().map(|run| (run.first, run.count, run.process, run.stride, run.job)).collect()
    }

    fn of_job(job: u32, ranks: impl IntoIterator<Item = u32>) -> Vec<(u32, u32)> {
        ranks.into_iter().map(|rank| (job, rank)).collect()
    }

    #[test]
    fn an_arithmetic_progression_is_one_run_whatever_its_length_and_direction() {
        assert_eq!(told(&of_job(7, 0..1000)), [(0, 1000, 0, 1, 7)]);
        assert_eq!(told(&of_job(7, (0..10).rev())), [(0, 10, 9, -1, 7)]);
        assert_eq!(told(&of_job(7, (1..10).step_by(2))), [(0, 5, 1, 2, 7)]);
        assert_eq!(told(&of_job(7, [5])), [(0, 1, 5, 0, 7)]);
        assert_eq!(told(&[]), []);
    }

    #[test]
    fn ranks_without_a_common_stride_and_processes_of_several_jobs_form_several_runs() {
        assert_eq!(told(&of_job(1, [0, 1, 2, 4, 6, 5])), [(0, 3, 0, 1, 1), (3, 2, 4, 2, 1), (5, 1, 5, 0, 1)]);
        let two = [of_job(1, 0..3), of_job(2, 3..5)].concat();
        assert_eq!(told(&two), [(0, 3, 0, 1, 1), (3, 2, 3, 1, 2)]);
        // A progression across two jobs, and steps that do not fit a stride.
        assert_eq!(told(&[(1, 0), (2, 1), (1, 2)]), [(0, 1, 0, 0, 1), (1, 1, 1, 0, 2), (2, 1, 2, 0, 1)]);
        let far = of_job(1, [0, u32::MAX - 1, 0]);
        assert_eq!(told(&far).len(), 3);
        assert_eq!(told(&of_job(1, [0, i32::MAX as u32])), [(0, 2, 0, i32::MAX, 1)]);
    }
}
