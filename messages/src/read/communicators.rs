// SPDX-License-Identifier: MIT OR Apache-2.0
//! Identifies the communicators of different processes with each other, and their members with ranks. Communicators are
//! the same if they have the same context and members; if a context is reused, the first ones of all processes are the
//! same, then the second ones, and so on. After an `MPI_Comm_split` disjoint communicators have the same context.
//! Called by `mod.rs`. Path: setup. Threads: plain data. Tests: tests/.

use std::collections::{BTreeMap, HashMap};

use ibex_trace::{TAGGED, UNTAGGED};

use crate::model::{Communicator, Rank};
use crate::read::groups::Group;
use crate::read::pass::Process;
use crate::time::Time;

/// Context, and members of both sides as indexes of ranks.
type Key = (u32, Vec<u32>, Vec<u32>);

/// A process, and its communicators with the same key, each with its position among all communicators of the process.
type OfProcess = (usize, Vec<(Named, usize)>);

/// A communicator of those with the same key: its creation time, its position, and the processes that have it.
type Instance = (Option<Time>, usize, Vec<(usize, Named)>);

#[derive(Default)]
pub(crate) struct Communicators {
    pub(crate) all: Vec<Communicator>,
    /// By process and context, in the order of creation.
    named: Vec<HashMap<u32, Vec<Named>>>,
    pub(crate) faults: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
struct Named {
    made: Option<Time>,
    freed: Option<Time>,
    /// Index in [`Communicators::all`].
    communicator: u32,
    /// Whether [`Communicator::remote`] has the process.
    is_remote: bool,
}

/// The worlds by Open MPI's job numbers, and the indexes by world and rank.
pub(crate) struct Worlds {
    jobs: BTreeMap<u32, u32>,
    places: HashMap<(u32, u32), u32>,
}

impl Worlds {
    /// Finds worlds by the communicators of processes whose head and world are known; adds a rank for each other
    /// process in a communicator.
    pub(crate) fn complete(processes: &[Process], ranks: &mut Vec<Rank>) -> Worlds {
        let mut jobs = BTreeMap::new();
        for (process, rank) in processes.iter().zip(ranks.iter()) {
            for group in &process.groups.0 {
                let own = usize::try_from(group.rank).ok();
                if let Some((job, number)) = own.and_then(|own| group.members(0)?.get(own).copied())
                    && number == rank.rank
                {
                    jobs.entry(job).or_insert(rank.world);
                }
            }
        }
        let mut places: HashMap<(u32, u32), u32> =
            (0..).zip(ranks.iter()).map(|(at, of)| ((of.world, of.rank), at)).collect();
        for group in processes.iter().flat_map(|process| &process.groups.0) {
            for (job, number) in [0, 1].into_iter().filter_map(|side| group.members(side)).flatten() {
                let next = ranks.iter().map(|rank| rank.world.saturating_add(1)).max().unwrap_or(0);
                let world = *jobs.entry(job).or_insert(next);
                places.entry((world, number)).or_insert_with(|| {
                    ranks.push(Rank { world, rank: number, ..Rank::default() });
                    (ranks.len() - 1) as u32
                });
            }
        }
        Worlds { jobs, places }
    }

    pub(crate) fn sorted(&mut self, ranks: &[Rank]) {
        self.places = (0..).zip(ranks).map(|(at, of)| ((of.world, of.rank), at)).collect();
    }

    pub(crate) fn place(&self, world: u32, rank: u32) -> Option<u32> {
        self.places.get(&(world, rank)).copied()
    }

    /// Returns the job number of a world; an unused number if no communicator shows it.
    pub(crate) fn job(&self, world: u32) -> u32 {
        let known = self.jobs.iter().find(|(_, of)| **of == world).map(|(job, _)| *job);
        known.unwrap_or(u32::MAX - world)
    }

    fn members(&self, group: &Group, side: usize) -> Option<Vec<u32>> {
        let place = |(job, number)| {
            let world = self.jobs.get(&job).copied().unwrap_or_else(|| u32::MAX - job);
            self.place(world, number)
        };
        group.members(side)?.into_iter().map(place).collect()
    }
}

impl Communicators {
    pub(crate) fn find(processes: &[Process], worlds: &Worlds) -> Communicators {
        let mut found = Communicators::default();
        let mut seen: HashMap<Key, Vec<OfProcess>> = HashMap::new();
        let mut torn = 0;
        for (at, process) in processes.iter().enumerate() {
            for (order, group) in process.groups.0.iter().enumerate() {
                let Some((own, other)) = worlds.members(group, 0).zip(worlds.members(group, 1)) else {
                    torn += 1;
                    continue;
                };
                // Both sides of an intercommunicator describe it in the same order.
                let is_remote = group.is_inter && other < own;
                let key = if is_remote { (group.context, other, own) } else { (group.context, own, other) };
                let named = Named { made: group.made, freed: group.freed, communicator: 0, is_remote };
                let of = seen.entry(key).or_default();
                match of.last_mut().filter(|(process, _)| *process == at) {
                    Some((_, ones)) => ones.push((named, order)),
                    None => of.push((at, vec![(named, order)])),
                }
            }
        }
        if torn > 0 {
            found.faults.push(format!("{torn} communicators have unknown members; their messages are left out."));
        }
        found.number(seen, processes.len());
        found
    }

    /// Numbers them in the order of creation.
    fn number(&mut self, seen: HashMap<Key, Vec<OfProcess>>, processes: usize) {
        let mut all: Vec<(Instance, Communicator)> = Vec::new();
        for ((context, members, remote), of) in seen {
            let most = of.iter().map(|(_, ones)| ones.len()).max().unwrap_or(0);
            let reference: Vec<Option<Time>> = of
                .iter()
                .find(|(_, ones)| ones.len() == most)
                .map(|(_, ones)| ones.iter().map(|(named, _)| named.made).collect())
                .unwrap_or_default();
            let mut instances: Vec<Instance> = vec![(None, usize::MAX, Vec::new()); most];
            for (process, ones) in of {
                if ones.len() != most {
                    self.faults.push(format!(
                        "One process has {} communicators with context {context} and the same members, another has {most}; they are distinguished by their times.",
                        ones.len()
                    ));
                }
                let mut next = 0;
                let left = ones.len();
                for (number, (named, order)) in ones.into_iter().enumerate() {
                    // Leaves an instance for each of the following communicators.
                    let last = most - (left - number - 1);
                    next = nearest(&reference[next..last], named.made) + next;
                    let instance = &mut instances[next];
                    instance.0 = earlier(instance.0, named.made);
                    instance.1 = instance.1.min(order);
                    instance.2.push((process, named));
                    next += 1;
                }
            }
            for instance in instances {
                let name = String::new();
                all.push((instance, Communicator { context, members: members.clone(), remote: remote.clone(), name }));
            }
        }
        all.sort_by(|(one, is), (other, is_other)| {
            let key = (one.0, is.context, one.1).cmp(&(other.0, is_other.context, other.1));
            key.then_with(|| is.members.cmp(&is_other.members))
        });
        self.named = vec![HashMap::new(); processes];
        for (communicator, ((_, _, processes), of)) in (0..).zip(all) {
            for (process, named) in processes {
                let named = Named { communicator, ..named };
                self.named[process].entry(of.context).or_default().push(named);
            }
            self.all.push(of);
        }
        for named in self.named.iter_mut().flat_map(HashMap::values_mut) {
            named.sort_by_key(|named| named.made);
        }
        for communicator in self.all.iter_mut().filter(|communicator| communicator.remote.is_empty()) {
            communicator.name = match communicator.context {
                0 => "MPI_COMM_WORLD".to_owned(),
                1 if communicator.members.len() == 1 => "MPI_COMM_SELF".to_owned(),
                TAGGED => "tagged messages".to_owned(),
                UNTAGGED => "untagged messages".to_owned(),
                _ => String::new(),
            };
        }
    }

    /// Returns the communicator that a process means by a context at a time, and the members of its other side.
    pub(crate) fn meant(&self, process: usize, context: u32, time: Option<Time>) -> Option<(u32, &[u32])> {
        let ones = self.named[process].get(&context)?;
        let named = match (ones.as_slice(), time) {
            ([only], _) | ([only, ..], None) => only,
            (ones, Some(time)) => {
                let after = ones.partition_point(|one| one.made.is_none_or(|made| made <= time));
                // Events before a creation belong to the new communicator, those while one is freed to the old one.
                let was_freed = |one: &Named| one.freed.is_some_and(|freed| freed < time);
                match after.checked_sub(1).map(|at| &ones[at]) {
                    Some(one) if after < ones.len() && was_freed(one) => &ones[after],
                    Some(one) => one,
                    None => &ones[0],
                }
            }
            ([], _) => return None,
        };
        let communicator = &self.all[named.communicator as usize];
        let is_inter = !communicator.remote.is_empty();
        let other = if is_inter && !named.is_remote { &communicator.remote } else { &communicator.members };
        Some((named.communicator, other))
    }
}

fn earlier(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    [one, other].into_iter().flatten().min()
}

/// Returns the index of the nearest time.
fn nearest(times: &[Option<Time>], to: Option<Time>) -> usize {
    let away = |time: &Option<Time>| match (time, to) {
        (Some(time), Some(to)) => time.since(to).unsigned_abs(),
        _ => 0,
    };
    times.iter().enumerate().min_by_key(|(_, time)| away(time)).map_or(0, |(at, _)| at)
}
