// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a program: chooses by the schedule who goes on next and what the network does, and checks what comes of it.
//!
//! Each message must arrive whole and once, and in MPI's order (`model`); at the end nothing waits, and all that was
//! taken is given back. [`run`] returns the failure, with the last steps. Grade: test. Threads: one per world; worlds
//! share nothing. Tests: those of the crate.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ibex::messenger::matching::{ANY_SOURCE, ANY_TAG, MessageHandle};
use ibex::messenger::request::Mode;
use ibex::transport::adapter::simulated::Fabric;

use crate::history::{History, Step};
use crate::memory::Memory;
use crate::model::{Got, Matches, Model, Sent, Wish};
use crate::process::{Ended, Found, Handle, Process, Wanted, laid_out};
use crate::program::{Operation, Program};
use crate::random::Random;

/// Time that passes when a port reads the clock. A port asks for asynchronous events every 5 ms.
const TICK: Duration = Duration::from_millis(5);

/// Most rounds until nothing moves any more.
const MOST_ROUNDS: u32 = 20_000;

/// Rounds without any event after which none can follow, because a port checks its connections in each.
const QUIET_ROUNDS: u32 = 4;

/// A receive that has begun.
struct Receive {
    at: u32,
    handle: Handle,
    room: usize,
    gaps: bool,
    /// Its memory, once it has ended.
    bytes: Option<Box<[u8]>>,
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
    processes: Vec<Process>,
    model: Model,
    pub(crate) history: History,
    random: Random,
    /// Weights of the kinds of steps, and of each process among those that poll.
    weights: [usize; 4],
    diligence: Vec<usize>,
    /// Most requests that the network moves at once.
    burst: usize,
    /// Operations of each process that have not begun.
    left: Vec<VecDeque<usize>>,
    /// Sends that have not ended, by the index of their message.
    sends: BTreeMap<usize, (u32, Handle)>,
    /// Receives, by the index of their wish.
    receives: BTreeMap<usize, Receive>,
    probed: Vec<VecDeque<Probed>>,
    now: usize,
}

/// Returns the bytes of a message, which differ between messages and between places.
fn content(message: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| ((message * 151) ^ (at * 29)).wrapping_add(at >> 7) as u8).collect()
}

impl World {
    pub(crate) fn new(program: &Program) -> Self {
        let (memory, settings) = (Memory::default(), program.settings());
        let fabric = Fabric::new(Box::new(memory.clone()), TICK);
        let count = program.processes as usize;
        let processes = (0..program.processes).map(|rank| Process::new(&fabric, &memory, rank, settings)).collect();
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
            burst: random.one_of(&[1, 4, 20]),
            left,
            sends: BTreeMap::new(),
            receives: BTreeMap::new(),
            probed: (0..count).map(|_| VecDeque::new()).collect(),
            now: 0,
            random,
        }
    }

    /// Runs the program.
    ///
    /// # Panics
    /// If a check fails.
    pub(crate) fn run(&mut self) {
        while self.left.iter().any(|left| !left.is_empty()) {
            self.step();
        }
        self.end();
    }

    // ---- the schedule ----------------------------------------------------------------------------------------------

    fn step(&mut self) {
        match self.random.by_weight(&self.weights) {
            0 => {
                let weights: Vec<usize> = self.left.iter().map(|left| usize::from(!left.is_empty())).collect();
                let at = self.random.by_weight(&weights);
                if let Some(operation) = self.left[at].pop_front() {
                    self.begin(operation);
                }
            }
            1 => {
                let at = self.random.by_weight(&self.diligence);
                self.poll(at);
            }
            kind => {
                let queue_pair = self.random.below(self.fabric.queue_pairs());
                let count = 1 + self.random.below(self.burst);
                self.move_some(queue_pair, count, kind == 2);
            }
        }
    }

    fn move_some(&mut self, queue_pair: usize, most: usize, carries: bool) {
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
    }

    fn poll(&mut self, at: usize) -> usize {
        let count = self.processes[at].poll();
        if count > 0 {
            self.history.note(Step::Polled { at: at as u32, count: count as u32 });
        }
        self.look(at);
        count
    }

    /// Moves everything and polls as every process until nothing happens.
    fn settle(&mut self) {
        let mut quiet = 0;
        for rounds in 0..MOST_ROUNDS {
            let before = self.fabric.moved();
            for queue_pair in 0..self.fabric.queue_pairs() {
                self.move_some(queue_pair, usize::MAX, true);
                self.move_some(queue_pair, usize::MAX, false);
            }
            let polled: usize = (0..self.processes.len()).map(|at| self.poll(at)).sum();
            quiet = if polled == 0 && self.fabric.moved() == before { quiet + 1 } else { 0 };
            if quiet == QUIET_ROUNDS {
                return self.history.note(Step::Settled { rounds });
            }
        }
        panic!("the processes do not come to rest");
    }

    // ---- the operations --------------------------------------------------------------------------------------------

    fn begin(&mut self, index: usize) {
        let operation = self.program.operations[index];
        self.now += 1;
        self.history.note(Step::Began { at: operation.at(), operation: index as u32 });
        match operation {
            Operation::Send { from, to, context, tag, length, synchronous, gaps } => {
                self.send((from, to), (context, tag), length, (synchronous, gaps));
            }
            Operation::Receive { at, from, context, tag, room, gaps } => {
                self.receive(at, wanted(context, from, tag), (room, gaps));
            }
            Operation::Probe { at, from, context, tag, takes } => self.probe(at, wanted(context, from, tag), takes),
            Operation::ReceiveProbed { at, room, gaps } => self.receive_probed(at, Some((room, gaps))),
            Operation::Cancel { at, which } => self.cancel_one(at, which),
            Operation::Settle { .. } => self.settle(),
            Operation::Refuse { at, rail, refuses } => {
                let place = self.processes[at as usize].places().nth(rail);
                self.memory.refuse(place.expect("a process has this rail"), refuses);
            }
        }
        self.look(operation.at() as usize);
    }

    fn send(&mut self, (from, to): (u32, u32), (context, tag): (u32, i32), length: usize, how: (bool, bool)) {
        let (synchronous, gaps) = how;
        let message = self.model.sent.len();
        let mode = if synchronous { Mode::Synchronous } else { Mode::Standard };
        self.model.sent.push(Sent {
            from: from as usize,
            to: to as usize,
            comm: context as usize,
            tag,
            length,
            is_synchronous: synchronous,
            done: None,
        });
        let bytes = content(message, length);
        match self.processes[from as usize].send(2 * message, (to, context, tag), mode, (&bytes, gaps)) {
            Some(send) => _ = self.sends.insert(message, (from, send)),
            None => self.model.sent[message].done = Some(self.now),
        }
    }

    fn wish(&mut self, at: u32, wanted: Wanted, takes: bool, got: Got) -> usize {
        self.model.wishes.push(Wish {
            at: at as usize,
            comm: wanted.context as usize,
            from: (wanted.source != ANY_SOURCE).then_some(wanted.source as usize),
            tag: (wanted.tag != ANY_TAG).then_some(wanted.tag),
            made: self.now,
            takes,
            got,
        });
        self.model.wishes.len() - 1
    }

    fn receive(&mut self, at: u32, wanted: Wanted, (room, gaps): (usize, bool)) {
        let wish = self.wish(at, wanted, true, Got::Nothing);
        let handle = self.processes[at as usize].receive(2 * wish + 1, wanted, (room, gaps));
        self.receives.insert(wish, Receive { at, handle, room, gaps, bytes: None });
    }

    fn probe(&mut self, at: u32, wanted: Wanted, takes: bool) {
        let Some(Found { source, tag, length, message }) = self.processes[at as usize].probe(wanted, takes) else {
            return;
        };
        let wish = self.wish(at, wanted, takes, Got::Message { source: source as usize, tag, length });
        self.history.note(Step::Received { at, wish: wish as u32, from: source as u32, length: length as u32 });
        if let Some(message) = message {
            self.probed[at as usize].push_back(Probed { wish, wanted, length, message });
        }
    }

    /// Receives the oldest message that a probe took out, into this room, or else one of its length.
    fn receive_probed(&mut self, at: u32, room: Option<(usize, bool)>) {
        let Some(Probed { wish, wanted, length, message }) = self.probed[at as usize].pop_front() else { return };
        let (room, gaps) = room.unwrap_or((length, false));
        let handle = self.processes[at as usize].receive_probed(2 * wish + 1, wanted, message, (room, gaps));
        self.receives.insert(wish, Receive { at, handle, room, gaps, bytes: None });
    }

    fn cancel_one(&mut self, at: u32, which: usize) {
        let open = self.receives.values().filter(|receive| receive.at == at && receive.bytes.is_none());
        let open: Vec<Handle> = open.map(|receive| receive.handle).collect();
        if let Some(handle) = open.get(which % open.len().max(1)) {
            self.processes[at as usize].cancel(*handle);
        }
    }

    /// Notes what has ended in a process.
    fn look(&mut self, at: usize) {
        for Ended { number, outcome, bytes } in self.processes[at].take_ended() {
            let (at, index) = (at as u32, number / 2);
            if number.is_multiple_of(2) {
                self.history.note(Step::Sent { at, message: index as u32 });
                self.model.sent[index].done = Some(self.now);
                self.sends.remove(&index).expect("a send ends once");
                continue;
            }
            let receive = self.receives.get_mut(&index).expect("a receive that has begun");
            assert!(receive.bytes.replace(bytes).is_none(), "a receive ends once");
            let known = &mut self.model.wishes[index].got;
            let got = outcome.map_or(Got::Cancelled, |outcome| {
                assert_eq!(outcome.is_truncated, outcome.length > receive.room);
                let (source, wish) = (outcome.source as usize, index as u32);
                let length = outcome.length as u32;
                self.history.note(Step::Received { at, wish, from: source as u32, length });
                Got::Message { source, tag: outcome.tag, length: outcome.length }
            });
            if got == Got::Cancelled {
                self.history.note(Step::Cancelled { at, wish: index as u32 });
            }
            assert!(
                *known == Got::Nothing || *known == got,
                "a probe has found {known:?}, and its receive got {got:?}"
            );
            *known = got;
        }
    }

    // ---- the end ---------------------------------------------------------------------------------------------------

    /// Receives every message, and checks that nothing is left.
    fn end(&mut self) {
        self.now += 1;
        for process in &self.processes {
            process.places().for_each(|place| self.memory.refuse(place, false));
        }
        for at in 0..self.program.processes {
            while !self.probed[at as usize].is_empty() {
                self.receive_probed(at, None);
            }
            self.look(at as usize);
        }
        self.settle();
        self.receive_rest();
        self.settle();
        self.check();
    }

    /// Cancels every receive that waits, and posts one for each message that no receive got.
    fn receive_rest(&mut self) {
        let Matches { takers, .. } = self.model.matches();
        let open = self.receives.iter().filter(|(_, receive)| receive.bytes.is_none());
        for (wish, at, handle) in open.map(|(wish, receive)| (*wish, receive.at, receive.handle)).collect::<Vec<_>>() {
            let is_cancelled = self.processes[at as usize].cancel(handle);
            assert!(is_cancelled, "receive {wish} has a message, and does not end");
            self.look(at as usize);
        }
        for message in (0..takers.len()).filter(|message| takers[*message].is_none()) {
            let Sent { from, to, comm, tag, length, .. } = self.model.sent[message];
            let wanted = wanted(comm as u32, Some(from as u32), Some(tag));
            self.receive(to as u32, wanted, (length, false));
            self.look(to);
        }
    }

    fn check(&mut self) {
        let Matches { of_wishes, takers } = self.model.matches();
        for (message, taker) in takers.iter().enumerate() {
            assert!(taker.is_some(), "message {message} is lost: {:?}", self.model.sent[message]);
        }
        if let Some((message, (at, send))) = self.sends.first_key_value() {
            let what = self.processes[*at as usize].describe_request(*send);
            panic!("send {message} of process {at} does not end: {what}");
        }
        for (wish, Receive { at, handle, room, gaps, bytes }) in &self.receives {
            let Some(bytes) = bytes else {
                let what = self.processes[*at as usize].describe_request(*handle);
                panic!("receive {wish} of process {at} does not end: {what}");
            };
            let sent = of_wishes[*wish].map(|message| content(message, self.model.sent[message].length));
            let sent = sent.unwrap_or_default();
            let expected = laid_out(&sent[..sent.len().min(*room)], *room, *gaps);
            let differs = expected.iter().zip(bytes).position(|(expected, got)| expected != got);
            assert!(
                **bytes == *expected,
                "receive {wish}, of message {:?}, has wrong bytes, the first at {differs:?} of {}",
                of_wishes[*wish],
                expected.len()
            );
        }
        self.check_rest();
    }

    /// Checks that all that was taken is given back.
    fn check_rest(&mut self) {
        self.processes.iter_mut().for_each(Process::reclaim);
        self.settle();
        assert_eq!(self.memory.registered(), 0, "registrations are left");
        let most = self.program.most_kept();
        for (at, process) in self.processes.iter_mut().enumerate() {
            assert!(!process.has_failed, "process {at} has lost a peer");
            if let Some(left) = process.left() {
                panic!("process {at} does not give back: {left}");
            }
            let kept = process.most_kept;
            assert!(kept <= most, "process {at} has kept {kept} bytes of unexpected messages, beyond {most}");
        }
    }

    /// Describes the connections, for a failure.
    pub(crate) fn describe(&mut self) -> Vec<String> {
        self.processes.iter_mut().map(Process::describe).filter(|lines| !lines.is_empty()).collect()
    }
}

fn wanted(context: u32, from: Option<u32>, tag: Option<i32>) -> Wanted {
    Wanted { context, source: from.map_or(ANY_SOURCE, |from| from as i32), tag: tag.unwrap_or(ANY_TAG) }
}
