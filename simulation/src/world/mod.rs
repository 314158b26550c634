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

use ibex::messenger::matching::MessageHandle;
use ibex::transport::adapter::simulated::Fabric;

use crate::history::Step;
use crate::memory::Memory;
use crate::model::Model;
use crate::process::{Handle, Process, Wanted};
use crate::program::{Operation, Program};
use crate::recorder::Trace;
use crate::schedule::{Limits, Schedule, Scheduled, TICK};
use communicators::Communicators;
use persistent::Persistent;

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
    pub(crate) schedule: Schedule,
    memory: Memory,
    /// The processes; `None`: it has died.
    processes: Vec<Option<Process>>,
    pub(crate) model: Model,
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
    /// Number of the step after which a process had ended all requests of a peer that it has lost, by their numbers.
    outlived: BTreeMap<(usize, usize), usize>,
    /// Whether a connection was made to fail by a port that refused a request.
    is_broken: bool,
}

/// Returns the bytes of a message, which differ between messages and between places.
pub(crate) fn content(message: usize, length: usize) -> Vec<u8> {
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
        let limits = Limits {
            processes: count,
            rails: program.rails,
            hello_faults: program.hello_faults,
            post_faults: program.post_faults,
            seed: program.schedule,
        };
        let mut world = World {
            program: program.clone(),
            schedule: Schedule::new(limits, fabric, program.operations.iter().map(Operation::at)),
            memory,
            processes,
            model: Model::default(),
            sends: BTreeMap::new(),
            receives: BTreeMap::new(),
            probed: (0..count).map(|_| VecDeque::new()).collect(),
            persistent: vec![Vec::new(); count],
            communicators: Communicators::default(),
            parted: BTreeSet::new(),
            ready: BTreeMap::new(),
            now: 0,
            outlived: BTreeMap::new(),
            is_broken: false,
        };
        world.listen_for_paths();
        world
    }

    /// Records the events of all processes from now on.
    pub(crate) fn record(&mut self) -> Trace {
        let trace = Trace::new(&self.program);
        for (rank, process) in self.processes.iter_mut().flatten().enumerate() {
            process.record(trace.recorder(rank, &self.schedule.fabric));
        }
        trace
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
                self.schedule.history.note(Step::Lost { at: at as u32 });
            }
            self.model.lost.extend(pairs);
            let is_due = self.schedule.has_failed && (!has_lost || self.schedule.fabric.has_lost_message());
            assert!(is_due || !self.model.gone.is_empty(), "process {at} has lost process {peer}, and no message");
        }
        let is_one_pair = self.model.lost.len() <= 2;
        assert!(is_one_pair || !self.model.gone.is_empty(), "of one connection, several peers are lost");
    }

    fn process(&mut self, at: u32) -> &mut Process {
        self.processes[at as usize].as_mut().expect("a dead process does nothing")
    }

    /// Settles, and checks that no receive waits for a message that was sent, although the program has not received the
    /// messages that its matched probes took out.
    fn rest(&mut self) {
        self.settle();
        if self.is_whole() && !self.schedule.has_failed && self.schedule.fabric.is_up() {
            self.model.matches();
        }
    }

    /// Polls as a process until its ports have noticed changes of their links.
    fn notice(&mut self, at: usize) {
        (0..NOTICED).for_each(|_| _ = self.poll(at));
    }
}

impl Scheduled for World {
    fn schedule(&mut self) -> &mut Schedule {
        &mut self.schedule
    }

    fn begin(&mut self, operation: usize) {
        World::begin(self, operation);
    }

    fn end(&mut self) {
        World::end(self);
    }

    fn describe(&mut self) -> Vec<String> {
        self.processes.iter_mut().flatten().map(Process::describe).filter(|lines| !lines.is_empty()).collect()
    }

    fn is_whole(&self) -> bool {
        self.model.gone.is_empty() && self.model.lost.is_empty()
    }

    fn poll(&mut self, at: usize) -> usize {
        let Some(process) = &mut self.processes[at] else { return 0 };
        let count = process.poll();
        process.wind();
        if count > 0 {
            self.schedule.history.note(Step::Polled { at: at as u32, count: count as u32 });
        }
        self.look(at);
        count
    }
}
