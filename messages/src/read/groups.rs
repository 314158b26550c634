// SPDX-License-Identifier: MIT OR Apache-2.0
//! The communicators of one process: members and lifetime of each. Events describe a communicator by runs of its
//! members (docs/events.md). Another may reuse its context after it is freed. Called by `pass.rs`; `communicators.rs`
//! identifies those of several processes. Path: setup. Threads: plain data. Tests: below; tests/.

use crate::read::vocabulary::{Element, Seen};
use crate::time::Time;

/// Consecutive members: ranks from `first` on are the processes `process`, `process` + `stride`, .. of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Run {
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) process: u32,
    pub(crate) stride: i32,
    pub(crate) job: u32,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Group {
    pub(crate) context: u32,
    pub(crate) is_inter: bool,
    /// Rank of this process.
    pub(crate) rank: i32,
    pub(crate) made: Option<Time>,
    pub(crate) freed: Option<Time>,
    /// Number of members of this process's side, and of the other side.
    pub(crate) size: [u32; 2],
    pub(crate) runs: [Vec<Run>; 2],
}

pub(crate) const MOST_RANKS: u32 = 1 << 22;

const MOST_MEMBERS: u32 = 1 << 22;

/// All communicators of a process, in the order of creation.
#[derive(Debug, Default)]
pub(crate) struct Groups(pub(crate) Vec<Group>);

impl Groups {
    pub(crate) fn create(&mut self, seen: &Seen<'_>, time: Option<Time>) {
        let (context, side) = (seen.unsigned(Element::Context), usize::from(seen.value(Element::Side) != 0));
        let run = Run {
            first: seen.unsigned(Element::First),
            count: seen.unsigned(Element::Count),
            process: seen.unsigned(Element::Process),
            stride: seen.signed(Element::Stride),
            job: seen.unsigned(Element::Job),
        };
        let open = self.0.iter().rposition(|group| group.context == context && group.freed.is_none());
        let at = open.filter(|at| self.0[*at].lacks(side, run.first)).unwrap_or_else(|| {
            let (is_inter, rank) = (seen.value(Element::Kind) != 0, seen.signed(Element::Rank));
            self.0.push(Group { context, is_inter, rank, made: time, ..Group::default() });
            self.0.len() - 1
        });
        let group = &mut self.0[at];
        group.size[side] = seen.unsigned(Element::Size);
        group.runs[side].push(run);
    }

    pub(crate) fn free(&mut self, seen: &Seen<'_>, time: Option<Time>) {
        let context = seen.unsigned(Element::Context);
        if let Some(group) = self.0.iter_mut().rfind(|group| group.context == context && group.freed.is_none()) {
            group.freed = time;
        }
    }
}

impl Group {
    /// Makes a communicator of these processes of one job, such as `MPI_COMM_WORLD`, which no event describes.
    pub(crate) fn assumed(context: u32, rank: i32, processes: &[u32], job: u32) -> Group {
        let run = |(first, process): (u32, &u32)| Run { first, count: 1, process: *process, stride: 0, job };
        let runs = [(0..).zip(processes).map(run).collect(), Vec::new()];
        Group { context, rank, size: [processes.len() as u32, 0], runs, ..Group::default() }
    }

    /// Whether no event has described the members of a side from this rank on.
    fn lacks(&self, side: usize, first: u32) -> bool {
        let known = self.runs[side].iter().map(|run| run.first.saturating_add(run.count)).max().unwrap_or(0);
        let is_begun = !self.runs[side].is_empty();
        if is_begun { known <= first && known < self.size[side] } else { side == 1 && self.is_inter }
    }

    /// Returns job and process of each member of a side, in the order of ranks. `None` if some are unknown.
    pub(crate) fn members(&self, side: usize) -> Option<Vec<(u32, u32)>> {
        let all = self.size[side];
        if all > MOST_MEMBERS {
            return None;
        }
        let mut members = Vec::with_capacity(all as usize);
        let mut runs = self.runs[side].clone();
        runs.sort_unstable();
        for run in runs {
            if run.first as usize != members.len() || run.count > all - run.first {
                return None;
            }
            for step in 0..run.count {
                let process = i64::from(run.process) + i64::from(run.stride) * i64::from(step);
                members.push((run.job, u32::try_from(process).ok().filter(|process| *process < MOST_RANKS)?));
            }
        }
        (members.len() == all as usize).then_some(members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_returns_those_of_the_runs_and_none_if_a_run_is_missing() {
        let run = |first, count, process, stride| Run { first, count, process, stride, job: 7 };
        let runs = [vec![run(2, 2, 9, -3), run(0, 2, 1, 1)], Vec::new()];
        let mut group = Group { size: [4, 0], runs, ..Group::default() };
        assert_eq!(group.members(0), Some(vec![(7, 1), (7, 2), (7, 9), (7, 6)]));
        assert_eq!(group.members(1), Some(Vec::new()));
        group.runs[0].pop();
        assert_eq!(group.members(0), None);
        group.runs[0] = vec![run(0, 4, 1, -1)];
        assert_eq!(group.members(0), None);
        // Process numbers that overflow.
        group.runs[0] = vec![run(0, 4, u32::MAX - 3, 1)];
        assert_eq!(group.members(0), None);
        (group.size[0], group.runs[0]) = (u32::MAX, vec![run(0, u32::MAX, 0, 1)]);
        assert_eq!(group.members(0), None);
    }
}
