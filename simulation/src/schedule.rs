// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who goes on next, and what the network does meanwhile: all random choices of a run. Used by the worlds of both
//! semantics, which say what an operation and a poll are. Grade: test. Threads: one. Tests: those of the crate.

use std::collections::VecDeque;
use std::time::Duration;

use ibex::transport::adapter::simulated::Fabric;

use crate::history::{History, Step};
use crate::random::Random;

/// Time that passes when a port reads the clock. A port asks for asynchronous events every 5 ms.
pub(crate) const TICK: Duration = Duration::from_millis(5);

/// Most rounds until nothing moves any more.
const MOST_ROUNDS: u32 = 200_000;

/// Rounds without any event after which none can follow, because a port checks its connections in each.
const IDLE_ROUNDS: u32 = 4;

/// If hellos, posts or a connection failed, or a process has died: time that passes in an idle round, and idle rounds
/// after which nothing follows. By then a process has asked again, or has given up a peer that does not answer.
const PAUSE: Duration = Duration::from_millis(250);
const PATIENT_ROUNDS: [u32; 2] = [6, 300];

/// Rounds after which nothing follows although hellos move: a port asks for ever for a connection that its peer cannot
/// make, if no message waits for it.
const ASKING_ROUNDS: u32 = 20_000;

/// What is random about a program's run.
pub(crate) struct Limits {
    pub(crate) processes: usize,
    /// Number of ports of each process.
    pub(crate) rails: usize,
    pub(crate) hello_faults: usize,
    pub(crate) post_faults: usize,
    pub(crate) seed: u64,
}

/// The step that the world has to take.
enum Turn {
    /// Begin the operation with this index.
    Begin(usize),
    /// Poll as this process.
    Poll(usize),
    /// None.
    Rest,
}

pub(crate) struct Schedule {
    limits: Limits,
    pub(crate) fabric: Fabric,
    pub(crate) history: History,
    random: Random,
    /// Weights of the kinds of steps, and of each process among those that poll.
    weights: [usize; 4],
    diligence: Vec<usize>,
    /// Number of steps for which each process makes no progress.
    pub(crate) stopped: Vec<usize>,
    /// Most requests that the network moves at once.
    burst: usize,
    /// Operations of each process that have not begun.
    pub(crate) left: Vec<VecDeque<usize>>,
    /// Steps from one attempt to make a queue pair fail to the next, on average.
    patience: usize,
    /// A queue pair from this one on is to fail, one that has nothing but reads if `true`.
    pub(crate) failing: Option<(usize, bool)>,
    /// Whether a connection was made to fail.
    pub(crate) has_failed: bool,
}

impl Schedule {
    /// `processes`: the process of each operation.
    pub(crate) fn new(limits: Limits, fabric: Fabric, processes: impl Iterator<Item = u32>) -> Self {
        let (mut random, count) = (Random::new(limits.seed, 1), limits.processes);
        let mut left = vec![VecDeque::new(); count];
        processes.enumerate().for_each(|(operation, at)| left[at as usize].push_back(operation));
        Schedule {
            fabric,
            history: History::default(),
            weights: [(); 4].map(|()| random.one_of(&[1, 2, 4, 8, 16])),
            diligence: (0..count).map(|_| random.one_of(&[1, 4, 4, 16])).collect(),
            stopped: vec![0; count],
            burst: random.one_of(&[1, 4, 20]),
            left,
            patience: random.one_of(&[8, 60, 200]),
            failing: None,
            has_failed: false,
            random,
            limits,
        }
    }

    /// Whether operations have not begun.
    fn has_more(&self) -> bool {
        self.left.iter().any(|left| !left.is_empty())
    }

    /// Lets the network do what it does next, and returns who goes on.
    fn next(&mut self) -> Turn {
        self.stopped.iter_mut().for_each(|steps| *steps = steps.saturating_sub(1));
        let Limits { hello_faults, post_faults, .. } = self.limits;
        if hello_faults > 0 && self.random.one_in(hello_faults) {
            self.lose_or_repeat_hello();
        }
        if post_faults > 0 && self.random.one_in(post_faults) {
            let place = self.a_port();
            self.fabric.refuse_post(place);
            self.history.note(Step::Full { port: place as u32 });
        }
        if let Some((queue_pair, reads)) = self.failing
            && self.random.one_in(self.patience)
        {
            let count = self.fabric.queue_pairs();
            self.has_failed = (0..count).any(|next| self.fabric.fail((queue_pair + next) % count, reads));
            self.failing = self.failing.filter(|_| !self.has_failed);
        }
        match self.random.by_weight(&self.weights) {
            0 => {
                let may_begin =
                    |(left, stopped): (&VecDeque<_>, &usize)| usize::from(!left.is_empty() && *stopped == 0);
                let weights: Vec<usize> = self.left.iter().zip(&self.stopped).map(may_begin).collect();
                let at = self.random.by_weight(&weights);
                let next = if weights[at] > 0 { self.left[at].pop_front() } else { None };
                next.map_or(Turn::Rest, Turn::Begin)
            }
            1 => {
                let at = self.random.by_weight(&self.diligence);
                if self.stopped[at] == 0 { Turn::Poll(at) } else { Turn::Rest }
            }
            kind => {
                let queue_pair = self.random.below(self.fabric.queue_pairs());
                let count = 1 + self.random.below(self.burst);
                self.move_some(queue_pair, count, kind == 2);
                Turn::Rest
            }
        }
    }

    fn a_port(&mut self) -> usize {
        self.random.below(self.limits.processes * self.limits.rails)
    }

    /// Carries or completes so many requests of a queue pair at most. False if there are none.
    fn move_some(&mut self, queue_pair: usize, most: usize, carries: bool) -> bool {
        let move_one = || if carries { self.fabric.carry(queue_pair) } else { self.fabric.acknowledge(queue_pair) };
        let count = (0..most).take_while(|_| move_one()).count() as u32;
        if count > 0 {
            let queue_pair = queue_pair as u32;
            self.history.note(if carries {
                Step::Carried { queue_pair, count }
            } else {
                Step::Acknowledged { queue_pair, count }
            });
        }
        count > 0
    }

    fn lose_or_repeat_hello(&mut self) {
        let place = self.a_port();
        let is_lost = !self.random.one_in(3);
        if if is_lost { self.fabric.lose_hello(place) } else { self.fabric.repeat_hello(place) } {
            self.history.note(Step::Hello { port: place as u32, is_lost });
        }
    }
}

/// A world whose schedule this is.
pub(crate) trait Scheduled {
    fn schedule(&mut self) -> &mut Schedule;

    /// Runs the program.
    ///
    /// # Panics
    /// If a check fails.
    fn run(&mut self) {
        while self.schedule().has_more() {
            match self.schedule().next() {
                Turn::Begin(operation) => self.begin(operation),
                Turn::Poll(at) => _ = self.poll(at),
                Turn::Rest => {}
            }
        }
        self.end();
    }

    /// Begins the operation with this index.
    fn begin(&mut self, operation: usize);

    /// Ends all operations, and checks that nothing is left.
    fn end(&mut self);

    /// Describes the connections, for a failure.
    fn describe(&mut self) -> Vec<String>;

    /// Whether every process lives, and has lost no peer.
    fn is_whole(&self) -> bool;

    /// Polls as a process, unless it has died. Returns the number of completions.
    fn poll(&mut self, at: usize) -> usize;

    /// Moves everything and polls as every process until nothing happens.
    fn settle(&mut self) {
        let Limits { processes, hello_faults, post_faults, .. } = self.schedule().limits;
        let has_faults = hello_faults + post_faults > 0;
        let (mut idle, mut asking) = (0, 0);
        for rounds in 0..MOST_ROUNDS {
            let schedule = self.schedule();
            let hellos = schedule.fabric.moved();
            let mut moved = false;
            for queue_pair in 0..schedule.fabric.queue_pairs() {
                moved |= schedule.move_some(queue_pair, usize::MAX, true);
                moved |= schedule.move_some(queue_pair, usize::MAX, false);
            }
            moved |= schedule.fabric.moved() != hellos;
            let polled: usize = (0..processes).map(|at| self.poll(at)).sum();
            asking = if polled > 0 { 0 } else { asking + 1 };
            let is_whole = self.is_whole();
            let schedule = self.schedule();
            // Once a process has died, others ask for it again and again, and probe the living.
            moved = polled > 0 || is_whole && (moved || schedule.fabric.moved() != hellos);
            let patient = PATIENT_ROUNDS[usize::from(!is_whole)];
            let is_patient = has_faults || schedule.has_failed || !is_whole;
            idle = if moved { 0 } else { idle + 1 };
            if idle == if is_patient { patient } else { IDLE_ROUNDS } || asking == ASKING_ROUNDS {
                return schedule.history.note(Step::Settled { rounds });
            }
            if is_patient && !moved {
                schedule.fabric.pass(PAUSE);
            }
        }
        panic!("the processes do not come to rest");
    }
}
