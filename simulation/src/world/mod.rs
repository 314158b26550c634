// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a program: chooses by the schedule who goes on next and what the network does, and checks what comes of it.
//!
//! Each message must arrive whole and once, and in MPI's order (`model`); at the end nothing waits, and all that was
//! taken is given back. `operations` begins the operations, of which `persistent` has those of persistent requests,
//! `communicators` those of communicators and `parting` those of processes that part; `end` and `paths` check. Grade:
//! test. Threads: one per world; worlds share nothing. Tests: those of the crate.

mod communicators;
mod end;
mod operations;
mod parting;
mod paths;
mod persistent;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use ibex::messenger::matching::MessageHandle;
use ibex::transport::adapter::simulated::Fabric;

use crate::history::{History, Step};
use crate::memory::Memory;
use crate::model::Model;
use crate::process::{Handle, Process, Wanted};
use crate::program::Program;
use crate::random::Random;
use crate::recorder::Trace;
use communicators::Communicators;
use persistent::Persistent;

/// Time that passes when a port reads the clock. A port asks for asynchronous events every 5 ms.
const TICK: Duration = Duration::from_millis(5);

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

/// Polls within which a port asks for asynchronous events.
const NOTICED: usize = 40;

/// A receive that has begun.
struct Receive {
    at: u32,
    handle: Handle,
    room: usize,
    gaps: bool,
    /// Its memory, once it has ended.
    bytes: Option<Box<[u8]>>,
    /// Whether it has ended because its sender is lost.
    has_failed: bool,
}

/// A matched probe whose message was not received yet.
struct Probed {
    wish: usize,
    wanted: Wanted,
    length: usize,
    message: MessageHandle,
}

pub(crate) struct World {
    program: Program,
    fabric: Fabric,
    memory: Memory,
    /// The processes; `None`: it has died.
    processes: Vec<Option<Process>>,
    pub(crate) model: Model,
    pub(crate) history: History,
    random: Random,
    /// Weights of the kinds of steps, and of each process among those that poll.
    weights: [usize; 4],
    diligence: Vec<usize>,
    /// Number of steps for which each process makes no progress.
    stopped: Vec<usize>,
    /// Most requests that the network moves at once.
    burst: usize,
    /// Operations of each process that have not begun.
    left: Vec<VecDeque<usize>>,
    /// Sends that have not ended, by the index of their message.
    sends: BTreeMap<usize, (u32, Handle)>,
    /// Receives, by the index of their wish.
    receives: BTreeMap<usize, Receive>,
    probed: Vec<VecDeque<Probed>>,
    persistent: Vec<Vec<Persistent>>,
    pub(crate) communicators: Communicators,
    /// Pairs of processes that have parted, the lower one first.
    parted: BTreeSet<[u32; 2]>,
    /// Messages of ready sends, each with the number of the step that began it.
    ready: BTreeMap<usize, usize>,
    now: usize,
    /// Steps from one attempt to make a queue pair fail to the next, on average.
    patience: usize,
    /// A queue pair from this one on is to fail, one that has nothing but reads if `true`.
    failing: Option<(usize, bool)>,
    /// Number of the step after which a process had ended all requests of a peer that it has lost, by their numbers.
    outlived: BTreeMap<(usize, usize), usize>,
    /// Whether a connection was made to fail; by a port that refused a request.
    has_failed: bool,
    is_broken: bool,
}

/// Returns the bytes of a message, which differ between messages and between places.
fn content(message: usize, length: usize) -> Vec<u8> {
    const BLOCK: usize = 128;
    let (mut bytes, of_message) = (vec![0; length], (message * 151) as u8);
    for (index, block) in bytes.chunks_mut(BLOCK).enumerate() {
        let first = (index * BLOCK) as u8;
        for (at, byte) in block.iter_mut().enumerate() {
            *byte = (of_message ^ first.wrapping_add(at as u8).wrapping_mul(29)).wrapping_add(index as u8);
        }
    }
    bytes
}

/// Returns a pair of processes, the lower one first.
fn sorted(one: u32, other: u32) -> [u32; 2] {
    [one.min(other), one.max(other)]
}

impl World {
    pub(crate) fn new(program: &Program) -> Self {
        let (memory, settings) = (Memory::default(), program.settings());
        let fabric = Fabric::new(Box::new(memory.clone()), TICK);
        let count = program.processes as usize;
        let processes =
            (0..program.processes).map(|rank| Some(Process::new(&fabric, &memory, rank, settings))).collect();
        let mut left = vec![VecDeque::new(); count];
        for (index, operation) in program.operations.iter().enumerate() {
            left[operation.at() as usize].push_back(index);
        }
        let mut random = Random::new(program.schedule, 1);
        World {
            program: program.clone(),
            fabric,
            memory,
            processes,
            model: Model::default(),
            history: History::default(),
            weights: [(); 4].map(|()| random.one_of(&[1, 2, 4, 8, 16])),
            diligence: (0..count).map(|_| random.one_of(&[1, 4, 4, 16])).collect(),
            stopped: vec![0; count],
            burst: random.one_of(&[1, 4, 20]),
            left,
            sends: BTreeMap::new(),
            receives: BTreeMap::new(),
            probed: (0..count).map(|_| VecDeque::new()).collect(),
            persistent: vec![Vec::new(); count],
            communicators: Communicators::default(),
            parted: BTreeSet::new(),
            ready: BTreeMap::new(),
            now: 0,
            patience: random.one_of(&[8, 60, 200]),
            failing: None,
            outlived: BTreeMap::new(),
            has_failed: false,
            is_broken: false,
            random,
        }
    }

    /// Records the events of all processes from now on.
    pub(crate) fn record(&mut self) -> Trace {
        let trace = Trace::new(&self.program);
        for (rank, process) in self.processes.iter_mut().flatten().enumerate() {
            process.record(trace.recorder(rank, &self.fabric));
        }
        trace
    }

    /// Runs the program.
    ///
    /// # Panics
    /// If a check fails.
    pub(crate) fn run(&mut self) {
        self.listen_for_paths();
        while self.left.iter().any(|left| !left.is_empty()) {
            self.step();
        }
        self.end();
    }

    /// Notes the peers that a process has lost. All go on, although MPI would end the job.
    ///
    /// # Panics
    /// If nothing permits that.
    fn note_lost(&mut self, at: usize) {
        let Some(process) = &self.processes[at] else { return };
        for (peer, has_lost) in &process.lost {
            let pairs = [(at, *peer as usize), (*peer as usize, at)];
            if !self.model.lost.contains(&pairs[0]) {
                self.history.note(Step::Lost { at: at as u32 });
            }
            self.model.lost.extend(pairs);
            let is_due = self.has_failed && (!has_lost || self.fabric.has_lost_message());
            assert!(is_due || !self.model.gone.is_empty(), "process {at} has lost process {peer}, and no message");
        }
        let is_one_pair = self.model.lost.len() <= 2;
        assert!(is_one_pair || !self.model.gone.is_empty(), "of one connection, several peers are lost");
    }

    /// Whether every process lives, and has lost no peer.
    fn is_whole(&self) -> bool {
        self.model.gone.is_empty() && self.model.lost.is_empty()
    }

    fn process(&mut self, at: u32) -> &mut Process {
        self.processes[at as usize].as_mut().expect("a dead process does nothing")
    }

    fn step(&mut self) {
        self.stopped.iter_mut().for_each(|steps| *steps = steps.saturating_sub(1));
        if self.program.hello_faults > 0 && self.random.one_in(self.program.hello_faults) {
            self.lose_or_repeat_hello();
        }
        if self.program.post_faults > 0 && self.random.one_in(self.program.post_faults) {
            let place = self.random.below(self.processes.len() * self.program.rails);
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
                if weights[at] > 0
                    && let Some(operation) = self.left[at].pop_front()
                {
                    self.begin(operation);
                }
            }
            1 => {
                let at = self.random.by_weight(&self.diligence);
                if self.stopped[at] == 0 {
                    self.poll(at);
                }
            }
            kind => {
                let queue_pair = self.random.below(self.fabric.queue_pairs());
                let count = 1 + self.random.below(self.burst);
                self.move_some(queue_pair, count, kind == 2);
            }
        }
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
        let place = self.random.below(self.processes.len() * self.program.rails);
        let is_lost = !self.random.one_in(3);
        if if is_lost { self.fabric.lose_hello(place) } else { self.fabric.repeat_hello(place) } {
            self.history.note(Step::Hello { port: place as u32, is_lost });
        }
    }

    /// Polls as a process, unless it has died. Returns the number of completions.
    fn poll(&mut self, at: usize) -> usize {
        let Some(process) = &mut self.processes[at] else { return 0 };
        let count = process.poll();
        process.wind();
        if count > 0 {
            self.history.note(Step::Polled { at: at as u32, count: count as u32 });
        }
        self.look(at);
        count
    }

    /// Moves everything and polls as every process until nothing happens.
    fn settle(&mut self) {
        let has_faults = self.program.hello_faults + self.program.post_faults > 0;
        let (mut idle, mut asking) = (0, 0);
        for rounds in 0..MOST_ROUNDS {
            let hellos = self.fabric.moved();
            let mut moved = false;
            for queue_pair in 0..self.fabric.queue_pairs() {
                moved |= self.move_some(queue_pair, usize::MAX, true);
                moved |= self.move_some(queue_pair, usize::MAX, false);
            }
            moved |= self.fabric.moved() != hellos;
            let polled: usize = (0..self.processes.len()).map(|at| self.poll(at)).sum();
            asking = if polled > 0 { 0 } else { asking + 1 };
            // Once a process has died, others ask for it again and again, and probe the living.
            moved = polled > 0 || self.is_whole() && (moved || self.fabric.moved() != hellos);
            let patient = PATIENT_ROUNDS[usize::from(!self.is_whole())];
            let is_patient = has_faults || self.has_failed || !self.is_whole();
            idle = if moved { 0 } else { idle + 1 };
            if idle == if is_patient { patient } else { IDLE_ROUNDS } || asking == ASKING_ROUNDS {
                return self.history.note(Step::Settled { rounds });
            }
            if is_patient && !moved {
                self.fabric.pass(PAUSE);
            }
        }
        panic!("the processes do not come to rest");
    }

    /// Settles, and checks that no receive waits for a message that was sent, although the program has not received the
    /// messages that its matched probes took out.
    fn rest(&mut self) {
        self.settle();
        if self.is_whole() && !self.has_failed && self.fabric.is_up() {
            self.model.matches();
        }
    }

    /// Polls as a process until its ports have noticed changes of their links.
    fn notice(&mut self, at: usize) {
        (0..NOTICED).for_each(|_| _ = self.poll(at));
    }

    /// Describes the connections, for a failure.
    pub(crate) fn describe(&mut self) -> Vec<String> {
        self.processes.iter_mut().flatten().map(Process::describe).filter(|lines| !lines.is_empty()).collect()
    }
}
