// SPDX-License-Identifier: MIT OR Apache-2.0
//! Iterates over all events of a job in the order of time, without a list of them. The items of a job are ordered by
//! their first times; a heap has the next step of each item in progress. Called by the formats that are ordered by
//! time. Path: a million messages are twelve million steps. Threads: one. Times: nanoseconds since the job's first
//! moment. Tests: below.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use ibex_messages::{Job, Message, Time};

use crate::lanes::{Lane, Lanes};
use crate::life::{Item, Life, Moment, Phase, life, phase};
use crate::threads::Threads;

#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) time: u64,
    pub(crate) item: Item,
    pub(crate) moment: Moment,
    /// Whether this is the first known moment of the item.
    pub(crate) is_first: bool,
    pub(crate) ends: Option<Phase>,
    /// The phase that begins, and the time of its end.
    pub(crate) begins: Option<(Phase, u64)>,
    /// The lane that draws the item; `None` if there are too many at once.
    pub(crate) lane: Option<u32>,
}

/// Time of a step, its item, and its position in the life; the earliest is first.
type Entry = Reverse<(i64, Item, u8)>;

pub(crate) struct Walk<'a> {
    job: &'a Job,
    threads: &'a Threads,
    /// First times of items that have not begun; the next one is last.
    waiting: Vec<Reverse<(i64, Item)>>,
    heap: BinaryHeap<Entry>,
    lanes: Lanes,
    /// Lanes of items in progress.
    drawn: HashMap<Item, u32>,
    first: i64,
}

impl<'a> Walk<'a> {
    /// `most_lanes`: largest number of items of a thread that are drawn at once in each direction.
    pub(crate) fn new(job: &'a Job, threads: &'a Threads, most_lanes: u32) -> Walk<'a> {
        let messages = (0..job.messages.len() as u32).flat_map(|place| [Item::Send(place), Item::Receive(place)]);
        let begins = |item| Some(Reverse((begin(job, item)?, item)));
        let mut waiting: Vec<_> = messages.chain(others(job)).filter_map(begins).collect();
        waiting.sort_unstable();
        let (heap, drawn) = (BinaryHeap::new(), HashMap::new());
        Walk { job, threads, waiting, heap, lanes: Lanes::new(most_lanes), drawn, first: first(job) }
    }

    pub(crate) fn lanes(&self) -> &[Lane] {
        self.lanes.all()
    }

    pub(crate) fn not_drawn(&self) -> u64 {
        self.lanes.refused()
    }

    /// Adds items that begin before the next step of the heap.
    fn admit(&mut self) {
        while let Some(&Reverse((time, item))) = self.waiting.last()
            && self.heap.peek().is_none_or(|Reverse((next, _, _))| time <= *next)
        {
            self.waiting.pop();
            self.heap.push(Reverse((time, item, 0)));
        }
    }

    fn step(&mut self, item: Item, life: &Life, position: usize) -> Step {
        let (moment, time) = life[position];
        let since = |time: i64| time.saturating_sub(self.first).cast_unsigned();
        let begins = phase(self.job, item, life, position).map(|phase| (phase, since(life[position + 1].1)));
        let ends = position.checked_sub(1).and_then(|before| phase(self.job, item, life, before));
        let time = since(time);
        let lane = self.lane(item, position, begins.is_none());
        Step { time, item, moment, is_first: position == 0, ends, begins, lane }
    }

    fn lane(&mut self, item: Item, position: usize, is_last: bool) -> Option<u32> {
        if position == 0 {
            // An item with one moment has no phase, and needs no lane.
            let lane = (!is_last).then(|| self.lanes.take(self.job, self.threads, item)).flatten()?;
            self.drawn.insert(item, lane);
            return Some(lane);
        }
        if !is_last {
            return self.drawn.get(&item).copied();
        }
        let lane = self.drawn.remove(&item)?;
        self.lanes.give_back(lane);
        Some(lane)
    }
}

impl Iterator for Walk<'_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        self.admit();
        let Reverse((_, item, position)) = self.heap.pop()?;
        let life = life(self.job, item);
        if let Some((_, time)) = life.get(usize::from(position) + 1) {
            self.heap.push(Reverse((*time, item, position + 1)));
        }
        Some(self.step(item, &life, usize::from(position)))
    }
}

fn others(job: &Job) -> impl Iterator<Item = Item> {
    let operations = (0..job.operations.len() as u32).map(Item::Operation);
    let connections = (0..job.connections.len() as u32).map(Item::Connection);
    let incidents = (0..job.incidents.len() as u32).map(Item::Incident);
    operations.chain(connections).chain(incidents)
}

fn begin(job: &Job, item: Item) -> Option<i64> {
    life(job, item).first().map(|(_, time)| *time)
}

/// Returns the job's first moment, nanoseconds since 1970.
pub(crate) fn first(job: &Job) -> i64 {
    let messages = job.messages.iter().flat_map(Message::moments).min().map(Time::nanoseconds);
    let others = others(job).filter_map(|item| begin(job, item));
    let calls = job.calls.iter().map(|call| call.begun).chain(job.searches.iter().map(|search| search.begun));
    let calls = calls.chain(job.fragments.iter().map(|fragment| fragment.time));
    let rest = calls.chain(job.pauses.iter().map(|pause| pause.from)).chain(job.span.map(|(first, _)| first));
    let rest = rest.map(Time::nanoseconds);
    others.chain(messages).chain(rest).min().unwrap_or(0)
}

/// Returns the nanoseconds from the job's first moment to a time; 0 for an earlier time (clocks may differ).
pub(crate) fn since(first: i64, time: Time) -> u64 {
    time.nanoseconds().saturating_sub(first).max(0).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(job: &Job) -> (Vec<Step>, Vec<Lane>) {
        let threads = Threads::of(job);
        let mut walk = Walk::new(job, &threads, 64);
        let steps: Vec<Step> = walk.by_ref().collect();
        assert!(walk.drawn.is_empty());
        (steps, walk.lanes().to_vec())
    }

    #[test]
    fn steps_are_in_the_order_of_time_and_no_moment_is_left_out() {
        let job = Job::synthetic(4, 5000, 1);
        let (steps, _) = steps(&job);
        assert!(steps.is_sorted_by_key(|step| step.time));
        assert_eq!(steps.len(), job.messages.iter().flat_map(Message::moments).count());
        assert_eq!(steps[0].time, 0);
    }

    #[test]
    fn the_order_of_the_messages_in_the_job_does_not_matter() {
        let mut job = Job::synthetic(4, 500, 1);
        let (as_made, _) = steps(&job);
        job.messages.reverse();
        let (reversed, _) = steps(&job);
        let times = |steps: &[Step]| steps.iter().map(|step| step.time).collect::<Vec<_>>();
        assert_eq!(times(&as_made), times(&reversed));
    }

    #[test]
    fn items_of_a_lane_do_not_overlap() {
        let job = Job::synthetic(3, 2000, 9);
        let (steps, lanes) = steps(&job);
        let mut on: Vec<Option<Item>> = vec![None; lanes.len()];
        for step in steps {
            let lane = step.lane.expect("64 are enough") as usize;
            if step.is_first {
                assert_eq!(on[lane], None);
                on[lane] = Some(step.item);
            }
            assert_eq!(on[lane], Some(step.item));
            if step.begins.is_none() {
                on[lane] = None;
            }
        }
        assert!(lanes.len() < 3 * 2 * 64, "{}", lanes.len());
    }
}
