// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raises the events for the creation of a communicator, with its members, and for its end.
//!
//! An event has members whose ranks in the job form an arithmetic progression, so most communicators take one event.
//! Called by `context.rs`. Grade: setup. Threads: any, with nothing entered, because callbacks run here. Tests: below,
//! and `hw-tests/tools/mpi_t_communicators.c`.

use engine::events::{self, CommunicatorCreated, CommunicatorFreed, Payload};
use ibex_ffi::openmpi::{release, sys};

use crate::runtime::watch::SAFETY;

/// Members with consecutive ranks, from `first` on: the processes `process`, `process + stride` and so on of a job.
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

/// Reports a new communicator, before any event of its messages.
///
/// # Safety
/// P4: `comm` is a communicator that Open MPI has filled in.
pub(crate) unsafe fn created(comm: *mut sys::ompi_communicator_t) {
    if events::interest().has(CommunicatorCreated::TYPE) {
        // SAFETY: P4: `comm` is filled in, as this function requires.
        unsafe { tell_created(comm) };
    }
}

/// # Safety
/// P4: `comm` is a communicator that Open MPI has filled in.
#[cold]
#[inline(never)]
unsafe fn tell_created(comm: *mut sys::ompi_communicator_t) {
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
pub(crate) fn freed(context: u32) {
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
    fn what_is_none_is_several_and_so_are_processes_of_several_jobs() {
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
