// SPDX-License-Identifier: MIT OR Apache-2.0
//! The members of a new communicator, as events report them: one event covers members whose ranks in the job form an
//! arithmetic progression, so most communicators take one event. Called by the PML (`pml/module/context.rs`). Grade:
//! setup. Threads: one that has entered nothing, because callbacks run here. Tests: below.

use crate::events::{self, CommunicatorCreated, Safety};
use crate::peer::PeerName;

/// Reports the members of one side of a new communicator: the processes of its group, or of its remote group.
pub fn created(
    safety: Safety,
    (context, kind, rank): (u32, u32, i32),
    is_remote: bool,
    members: impl ExactSizeIterator<Item = PeerName>,
) {
    let size = members.len() as u32;
    for Run { first, count, process, stride, job } in runs(members.map(|name| (name.job, name.rank))) {
        events::raise(safety, || {
            let of = CommunicatorCreated {
                context,
                kind,
                rank,
                size,
                side: is_remote.into(),
                ..CommunicatorCreated::default()
            };
            CommunicatorCreated { first, count, process, stride, job, ..of }
        });
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::events::tests::listening_to;
    use crate::events::{Options, Payload as _, Value};

    /// Returns runs as the events report them: first, count, process, stride, job.
    fn reported(members: &[(u32, u32)]) -> Vec<(u32, u32, u32, i32, u32)> {
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
        assert_eq!(reported(&of_job(7, 0..1000)), [(0, 1000, 0, 1, 7)]);
        assert_eq!(reported(&of_job(7, (0..10).rev())), [(0, 10, 9, -1, 7)]);
        assert_eq!(reported(&of_job(7, (1..10).step_by(2))), [(0, 5, 1, 2, 7)]);
        assert_eq!(reported(&of_job(7, [5])), [(0, 1, 5, 0, 7)]);
        assert_eq!(reported(&[]), []);
    }

    #[test]
    fn each_run_of_members_is_an_event_that_names_the_communicator_and_the_run() {
        let (_alone, seen, _registration) =
            listening_to(CommunicatorCreated::TYPE, Safety::ThreadSafe, Options::default());
        let members = [5, 7, 9, 2].map(|rank| PeerName { job: 3, rank });
        created(Safety::ThreadSafe, (40, 1, 8), true, members.into_iter());
        let values = seen.lock().iter().flat_map(|one| (0..10).filter_map(|at| one.value(at))).collect::<Vec<_>>();
        let event = |first, count, process, stride| {
            let of = [40, 1, 4, 1, first, count, process, 3].map(Value::U32);
            [&of[..2], &[Value::I32(8)], &of[2..7], &[Value::I32(stride)], &of[7..]].concat()
        };
        assert_eq!(values, [event(0, 3, 5, 2), event(3, 1, 2, 0)].concat());
    }

    #[test]
    fn ranks_without_a_common_stride_and_processes_of_several_jobs_form_several_runs() {
        assert_eq!(reported(&of_job(1, [0, 1, 2, 4, 6, 5])), [(0, 3, 0, 1, 1), (3, 2, 4, 2, 1), (5, 1, 5, 0, 1)]);
        let two = [of_job(1, 0..3), of_job(2, 3..5)].concat();
        assert_eq!(reported(&two), [(0, 3, 0, 1, 1), (3, 2, 3, 1, 2)]);
        // A progression across two jobs, and steps that do not fit a stride.
        assert_eq!(reported(&[(1, 0), (2, 1), (1, 2)]), [(0, 1, 0, 0, 1), (1, 1, 1, 0, 2), (2, 1, 2, 0, 1)]);
        let far = of_job(1, [0, u32::MAX - 1, 0]);
        assert_eq!(reported(&far).len(), 3);
        assert_eq!(reported(&of_job(1, [0, i32::MAX as u32])), [(0, 2, 0, i32::MAX, 1)]);
    }
}
