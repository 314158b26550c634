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

/// If hellos were lost or a process has died, time that passes in a quiet round, and quiet rounds after which nothing
/// follows: by then a process has asked again, or has given up a peer that does not answer.
const PAUSE: Duration = Duration::from_millis(250);
const PATIENT_ROUNDS: [u32; 2] = [6, 300];

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
    model: Model,
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
    now: usize,
    /// Whether a queue pair was made to fail.
    has_failed: bool,
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
            now: 0,
            has_failed: false,
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
            if self.is_over() {
                return;
            }
        }
        self.end();
    }

    /// Whether a process has lost a peer because a queue pair failed, which ends a job.
    ///
    /// # Panics
    /// If nothing permits that.
    fn is_over(&self) -> bool {
        let lost = self.processes.iter().flatten().any(|process| process.has_failed);
        let is_whole = self.model.gone.is_empty();
        let is_permitted = !is_whole || self.has_failed && self.fabric.has_lost_message();
        assert!(!lost || is_permitted, "a process has lost a peer, and no message was lost");
        lost && (is_whole || self.has_failed)
    }

    fn process(&mut self, at: u32) -> &mut Process {
        self.processes[at as usize].as_mut().expect("a dead process does nothing")
    }

    // ---- the schedule ----------------------------------------------------------------------------------------------

    fn step(&mut self) {
        self.stopped.iter_mut().for_each(|steps| *steps = steps.saturating_sub(1));
        if self.program.hello_faults > 0 && self.random.one_in(self.program.hello_faults) {
            self.lose_or_repeat_hello();
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
        let had_failed = process.has_failed;
        let count = process.poll();
        process.wind();
        if process.has_failed && !had_failed {
            self.history.note(Step::Lost { at: at as u32 });
        }
        if count > 0 {
            self.history.note(Step::Polled { at: at as u32, count: count as u32 });
        }
        self.look(at);
        count
    }

    /// Moves everything and polls as every process until nothing happens.
    fn settle(&mut self) {
        let (mut quiet, is_patient) = (0, self.program.hello_faults > 0 || !self.model.gone.is_empty());
        let patient = PATIENT_ROUNDS[usize::from(!self.model.gone.is_empty())];
        for rounds in 0..MOST_ROUNDS {
            let hellos = self.fabric.moved();
            let mut moved = false;
            for queue_pair in 0..self.fabric.queue_pairs() {
                moved |= self.move_some(queue_pair, usize::MAX, true);
                moved |= self.move_some(queue_pair, usize::MAX, false);
            }
            moved |= self.fabric.moved() != hellos;
            let polled: usize = (0..self.processes.len()).map(|at| self.poll(at)).sum();
            // Once a process has died, others ask for it again and again, and probe the living.
            moved = polled > 0 || self.model.gone.is_empty() && (moved || self.fabric.moved() != hellos);
            if self.is_over() {
                return;
            }
            quiet = if moved { 0 } else { quiet + 1 };
            if quiet == if is_patient { patient } else { QUIET_ROUNDS } {
                return self.history.note(Step::Settled { rounds });
            }
            if is_patient && !moved {
                self.fabric.pass(PAUSE);
            }
        }
        panic!("the processes do not come to rest");
    }

    /// Polls as a process until its ports have noticed changes of their links.
    fn notice(&mut self, at: usize) {
        (0..NOTICED).for_each(|_| _ = self.poll(at));
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
                let place = self.place(at, rail);
                self.memory.refuse(place, refuses);
            }
            Operation::Link { at, rail, up, noticed } => {
                self.fabric.set_link(self.place(at, rail), up);
                if noticed {
                    self.notice(at as usize);
                }
            }
            Operation::Fail { queue_pair, reads, .. } => {
                let count = self.fabric.queue_pairs();
                let next = |next| self.fabric.fail((queue_pair + next) % count, reads);
                self.has_failed = self.has_failed || (0..count).any(next);
            }
            Operation::Stop { at, steps } => self.stopped[at as usize] = steps,
            Operation::Die { at } => {
                self.model.gone.push(at as usize);
                self.note_matched();
                self.processes[at as usize] = None;
                self.left[at as usize].clear();
                self.probed[at as usize].clear();
            }
        }
        if let Some(process) = &mut self.processes[operation.at() as usize] {
            process.wind();
        }
        self.look(operation.at() as usize);
    }

    /// Returns the number in the fabric of a port.
    fn place(&self, at: u32, rail: usize) -> usize {
        at as usize * self.program.rails + rail
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
        match self.process(from).send(2 * message, (to, context, tag), mode, (&bytes, gaps)) {
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
        let handle = self.process(at).receive(2 * wish + 1, wanted, (room, gaps));
        self.receives.insert(wish, Receive { at, handle, room, gaps, bytes: None });
    }

    fn probe(&mut self, at: u32, wanted: Wanted, takes: bool) {
        let Some(Found { source, tag, length, message }) = self.process(at).probe(wanted, takes) else { return };
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
        let handle = self.process(at).receive_probed(2 * wish + 1, wanted, message, (room, gaps));
        self.receives.insert(wish, Receive { at, handle, room, gaps, bytes: None });
    }

    fn cancel_one(&mut self, at: u32, which: usize) {
        let open = self.receives.values().filter(|receive| receive.at == at && receive.bytes.is_none());
        let open: Vec<Handle> = open.map(|receive| receive.handle).collect();
        if let Some(handle) = open.get(which % open.len().max(1)) {
            self.process(at).cancel(*handle);
        }
    }

    /// Notes what has ended in a process.
    fn look(&mut self, at: usize) {
        let Some(process) = &mut self.processes[at] else { return };
        for Ended { number, outcome, bytes } in process.take_ended() {
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
        for at in 0..self.processes.len() {
            for rail in 0..self.program.rails {
                let place = self.place(at as u32, rail);
                self.memory.refuse(place, false);
                self.fabric.set_link(place, true);
            }
        }
        for at in 0..self.processes.len() {
            if self.program.rails > 1 {
                self.notice(at);
            }
            while !self.probed[at].is_empty() {
                self.receive_probed(at as u32, None);
            }
            self.look(at);
        }
        self.settle();
        if self.is_over() {
            return;
        }
        self.receive_rest();
        self.settle();
        if !self.is_over() {
            self.check();
        }
    }

    /// Notes what receives have matched that have not ended, once a process has died: they may never end.
    fn note_matched(&mut self) {
        if self.model.gone.is_empty() {
            return;
        }
        for (wish, Receive { at, handle, bytes, .. }) in &self.receives {
            if let Some(process) = &mut self.processes[*at as usize]
                && bytes.is_none()
                && let Some(outcome) = process.matched(*handle)
            {
                let (source, tag, length) = (outcome.source as usize, outcome.tag, outcome.length);
                self.model.wishes[*wish].got = Got::Message { source, tag, length };
            }
        }
    }

    /// Whether a receive has a message of a process that has died, or has died itself.
    fn is_of_the_gone(&self, wish: usize) -> bool {
        let Wish { at, got, .. } = self.model.wishes[wish];
        self.is_gone(at) || matches!(got, Got::Message { source, .. } if self.is_gone(source))
    }

    /// Cancels every receive that waits, and posts one for each message that no receive got.
    fn receive_rest(&mut self) {
        self.note_matched();
        let Matches { takers, .. } = self.model.matches();
        let open = self.receives.iter().filter(|(_, receive)| receive.bytes.is_none());
        for (wish, at, handle) in open.map(|(wish, receive)| (*wish, receive.at, receive.handle)).collect::<Vec<_>>() {
            if self.is_gone(at as usize) {
                continue;
            }
            let is_cancelled = self.process(at).cancel(handle);
            assert!(is_cancelled || self.is_of_the_gone(wish), "receive {wish} has a message, and does not end");
            self.look(at as usize);
        }
        for message in (0..takers.len()).filter(|message| takers[*message].is_none()) {
            let Sent { from, to, comm, tag, length, .. } = self.model.sent[message];
            if self.is_gone(from) || self.is_gone(to) {
                continue;
            }
            let wanted = wanted(comm as u32, Some(from as u32), Some(tag));
            self.receive(to as u32, wanted, (length, false));
            self.look(to);
        }
    }

    fn is_gone(&self, at: usize) -> bool {
        self.processes[at].is_none()
    }

    fn check(&mut self) {
        self.note_matched();
        let Matches { of_wishes, takers } = self.model.matches();
        for (message, taker) in takers.iter().enumerate() {
            let sent = &self.model.sent[message];
            let is_excused = self.is_gone(sent.from) || self.is_gone(sent.to);
            assert!(taker.is_some() || is_excused, "message {message} is lost: {sent:?}");
        }
        self.check_sends();
        for (wish, Receive { at, handle, room, gaps, bytes }) in &self.receives {
            let Some(bytes) = bytes else {
                if self.is_of_the_gone(*wish) {
                    continue;
                }
                let what = self.processes[*at as usize].as_mut().map(|process| process.describe_request(*handle));
                panic!("receive {wish} of process {at} does not end: {what:?}");
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

    /// Checks that each send has ended, or its process has lost the receiver.
    fn check_sends(&mut self) {
        for (message, (at, send)) in &self.sends {
            let is_to_the_gone = self.processes[self.model.sent[*message].to].is_none();
            let Some(process) = &mut self.processes[*at as usize] else { continue };
            if !(is_to_the_gone && process.has_failed) {
                let what = process.describe_request(*send);
                panic!("send {message} of process {at} does not end: {what}");
            }
        }
    }

    /// Checks that all that was taken is given back.
    fn check_rest(&mut self) {
        self.processes.iter_mut().flatten().for_each(Process::reclaim);
        self.settle();
        let is_whole = self.model.gone.is_empty();
        for (at, process) in self.processes.iter_mut().enumerate() {
            let Some(process) = process else { continue };
            assert!(!(is_whole && process.has_failed), "process {at} has lost a peer");
            if let Some(left) = process.left().filter(|_| is_whole) {
                panic!("process {at} does not give back: {left}");
            }
        }
        assert!(!is_whole || self.memory.registered() == 0, "registrations are left");
    }

    /// Describes the connections, for a failure.
    pub(crate) fn describe(&mut self) -> Vec<String> {
        self.processes.iter_mut().flatten().map(Process::describe).filter(|lines| !lines.is_empty()).collect()
    }
}

fn wanted(context: u32, from: Option<u32>, tag: Option<i32>) -> Wanted {
    Wanted { context, source: from.map_or(ANY_SOURCE, |from| from as i32), tag: tag.unwrap_or(ANY_TAG) }
}
