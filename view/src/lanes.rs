// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lanes, which make up the rows of the time line. A rank has as many lanes as it has threads at one time, at least
//! one: a thread that began after another one's end shares its lane. Messages refer to lanes, not ranks, so that the
//! page needs no look-up. Called by the files that write messages. Tests: below.

use ibex_messages::{Job, Message, Time};
use serde::Serialize;
use std::collections::HashMap;

/// A part of a rank's row, or a row of its own if the user has opened the rank.
#[derive(Serialize)]
pub(crate) struct Lane {
    pub(crate) rank: u32,
    /// Its name among the lanes of the rank; empty if it is the only one.
    pub(crate) thread: String,
}

/// All lanes, by rank; those of a rank in the order of their first threads.
pub(crate) struct Lanes {
    pub(crate) all: Vec<Lane>,
    first: Vec<u32>,
    by_thread: HashMap<(u32, u32), u32>,
}

struct Life {
    number: u32,
    from: Time,
    to: Time,
}

impl Lanes {
    pub(crate) fn of(job: &Job) -> Lanes {
        let mut lanes = Lanes { all: Vec::new(), first: Vec::new(), by_thread: HashMap::new() };
        for (place, lives) in (0..).zip(lives(job)) {
            let first = lanes.all.len() as u32;
            lanes.first.push(first);
            let mut shared: Vec<Vec<Life>> = Vec::new();
            for life in lives {
                let is_free = |lane: &Vec<Life>| lane.last().is_some_and(|before| before.to < life.from);
                let lane = shared.iter().position(is_free).unwrap_or_else(|| {
                    shared.push(Vec::new());
                    shared.len() - 1
                });
                lanes.by_thread.insert((place, life.number), first + lane as u32);
                shared[lane].push(life);
            }
            match &shared[..] {
                [] | [_] => lanes.all.push(Lane { rank: place, thread: String::new() }),
                several => lanes.all.extend(several.iter().map(|lane| Lane { rank: place, thread: name(lane) })),
            }
        }
        lanes
    }

    pub(crate) fn of_rank(&self, rank: u32) -> u32 {
        self.first.get(rank as usize).copied().unwrap_or_default()
    }

    pub(crate) fn of_message(&self, message: &Message) -> (u32, u32) {
        let sender = self.of_thread(message.sender, message.send.map(|side| side.thread));
        let receiver = self.of_thread(message.receiver, message.receive.map(|side| side.thread));
        (sender, receiver)
    }

    /// Returns the lane of a thread of a rank; for an unknown thread, the rank's first lane.
    pub(crate) fn of_thread(&self, rank: u32, thread: Option<u32>) -> u32 {
        let known = thread.and_then(|thread| self.by_thread.get(&(rank, thread)).copied());
        known.unwrap_or_else(|| self.of_rank(rank))
    }
}

/// Returns each rank's threads that sent, received, waited or searched, in the order of their first moments.
fn lives(job: &Job) -> Vec<Vec<Life>> {
    let mut known: HashMap<(u32, u32), (Time, Time)> = HashMap::new();
    let mut grow = |rank, thread, times: &[Option<Time>]| {
        for time in times.iter().copied().flatten() {
            let (from, to) = known.entry((rank, thread)).or_insert((time, time));
            (*from, *to) = (time.min(*from), time.max(*to));
        }
    };
    for message in &job.messages {
        if let Some(side) = message.send {
            let times = [side.activated, side.left(), side.ended, side.completed, side.notified];
            grow(message.sender, side.thread, &times);
        }
        if let Some(side) = message.receive {
            // A message may arrive before the thread begins that receives it.
            let times = [side.activated, side.posted, side.matched, side.ended, side.completed, side.notified];
            grow(message.receiver, side.thread, &times);
        }
    }
    for call in &job.calls {
        grow(call.rank, call.thread, &[Some(call.begun), call.ended]);
    }
    for search in &job.searches {
        grow(search.rank, search.thread, &[Some(search.begun), Some(search.ended)]);
    }
    let mut lives: Vec<Vec<Life>> = job.ranks.iter().map(|_| Vec::new()).collect();
    for ((rank, number), (from, to)) in known {
        if let Some(lives) = lives.get_mut(rank as usize) {
            lives.push(Life { number, from, to });
        }
    }
    for lives in &mut lives {
        lives.sort_by_key(|life| (life.from, life.number));
    }
    lives
}

/// Returns a lane's name: its thread, or its number of threads.
fn name(lane: &[Life]) -> String {
    match lane {
        [Life { number, .. }] => format!("thread {number}"),
        _ => format!("{} threads", lane.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibex_messages::Rank;

    /// Makes a job of two ranks. Thread 0 of rank 0 sends all messages; `of` returns a message's receiving thread.
    fn received_by(of: impl Fn(usize) -> u32) -> Job {
        let mut job = Job::synthetic(2, 400, 1);
        for (place, message) in job.messages.iter_mut().enumerate() {
            if let Some(side) = message.receive.as_mut().filter(|_| message.receiver == 0) {
                side.thread = of(place);
            }
        }
        job
    }

    #[test]
    fn threads_that_live_at_once_have_lanes_of_their_own_and_a_rank_without_any_has_one() {
        let mut job = received_by(|_| 7);
        job.ranks.push(Rank::default());
        let lanes = Lanes::of(&job);
        let mut all: Vec<_> = lanes.all.iter().map(|lane| (lane.rank, lane.thread.as_str())).collect();
        all.sort_unstable();
        assert_eq!(all, [(0, "thread 0"), (0, "thread 7"), (1, ""), (2, "")]);
        let message = job.messages.iter().find(|message| message.receiver == 0).expect("of 400 about half");
        let (sender, receiver) = lanes.of_message(message);
        assert_eq!((sender, lanes.all[receiver as usize].thread.as_str()), (2, "thread 7"));
        assert_eq!(lanes.of_message(&Message { receive: None, ..message.clone() }), (2, 0));
    }

    #[test]
    fn two_hundred_short_threads_one_after_the_other_share_a_lane() {
        let mut job = received_by(|place| 1 + place as u32);
        let mut now = job.span.expect("it has messages").0.nanoseconds();
        for side in job
            .messages
            .iter_mut()
            .filter(|message| message.receiver == 0)
            .filter_map(|message| message.receive.as_mut())
        {
            let times = [&mut side.activated, &mut side.posted, &mut side.matched, &mut side.begun];
            for time in times.into_iter().chain([&mut side.ended, &mut side.completed, &mut side.notified]) {
                now += 10;
                *time = Some(Time::new(now));
            }
        }
        let lanes = Lanes::of(&job);
        let of_rank_0 = lanes.all.iter().filter(|lane| lane.rank == 0).count();
        let received = job.messages.iter().filter(|message| message.receiver == 0).count();
        assert!(received > 150, "{received}");
        assert_eq!(of_rank_0, 2, "one of the sender, one of the {received} that receive");
        assert!(lanes.all.iter().any(|lane| lane.thread == format!("{received} threads")));
    }

    #[test]
    fn threads_at_once_are_as_many_lanes_as_there_are_at_once_and_no_more() {
        let job = received_by(|place| 1 + place as u32 % 3);
        assert_eq!(Lanes::of(&job).all.iter().filter(|lane| lane.rank == 0).count(), 4);
    }
}
