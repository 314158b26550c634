// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random histories: processes send, receive, probe, cancel and free in any order, and the fabric moves in any order.
//! Each receive must get a message that MPI permits, with the right bytes. At the end all requests are finished and
//! given back, and no sender is held back; or the job was ended, because a queue pair failed with a message in flight.

use super::operation::Bytes;
use super::steps::{Step, TAGS, Wanted, step};
use super::*;
use crate::pml::module::probe::Matched;
use crate::pml::request::Owner;
use engine::messenger::rails::routes::SHORTEST;
use ibex_simulation::model::{Got, Matches, Model, Sent, Wish};
use proptest::prelude::*;

/// Lengths around the shortest message that several ports read, bytes.
const LONGEST: [usize; 3] = [SHORTEST - 1, SHORTEST, if cfg!(miri) { SHORTEST + 1 } else { 3 * SHORTEST + 1 }];

struct Receive {
    /// Index of its wish in the model.
    wish: usize,
    how: How,
    room: usize,
    operation: Operation,
}

struct History {
    shape: Shape,
    model: Model,
    /// Unfinished sends, each with the index of its message in the model.
    sends: Vec<(usize, How, Operation)>,
    receives: Vec<Receive>,
    /// Finished persistent requests.
    idle_sends: Vec<(usize, How, Operation)>,
    idle_receives: Vec<Receive>,
    /// Finished receives: index of the wish, the buffer's layout and size, and the buffer.
    received: Vec<(usize, How, usize, Bytes)>,
    /// Buffers of sends that were freed before they were finished.
    freed: Vec<Bytes>,
    /// Matched probes whose message was not received yet: index of the wish, and the message.
    probed: Vec<(usize, Matched)>,
    /// Numbers of the communicators in use.
    comms: Vec<usize>,
    next_comm: usize,
    now: usize,
    /// Whether a queue pair may fail, and whether it has.
    fails: bool,
    has_failed: bool,
    /// Last field, because operations that are dropped before it use it.
    world: World,
}

impl History {
    fn new(shape: Shape, comms: usize, fails: bool) -> Self {
        History {
            shape,
            model: Model::default(),
            sends: Vec::new(),
            receives: Vec::new(),
            idle_sends: Vec::new(),
            idle_receives: Vec::new(),
            received: Vec::new(),
            freed: Vec::new(),
            probed: Vec::new(),
            comms: (0..comms).collect(),
            next_comm: comms,
            now: 0,
            fails,
            has_failed: false,
            world: World::new(shape),
        }
    }

    fn step(&mut self, step: Step) {
        let Shape { processes, rails, .. } = self.shape;
        self.now += 1;
        match step {
            Step::Send { from, to, comm, tag, length, mode, how } => {
                let (from, to, comm) = (from % processes, to % processes, self.comms[comm % self.comms.len()]);
                let (message, length, tag) = (self.model.sent.len(), self.length(length, how), TAGS[tag]);
                let is_synchronous = mode == Mode::Synchronous;
                self.model.sent.push(Sent { from, to, comm, tag, length, is_synchronous, done: None });
                match self.world.send(from, (to, comm, tag), mode, how, &content(message, length)) {
                    Some(send) => self.sends.push((message, how, send)),
                    None => self.model.sent[message].done = Some(self.now),
                }
            }
            Step::Receive { at, wanted, how, room } => {
                self.receive(at % processes, self.named(wanted), how, self.length(room, how));
            }
            Step::Start(which) => self.start(which),
            Step::Probe { at, wanted, takes } => self.probe(at % processes, self.named(wanted), takes),
            Step::ReceiveProbed { how, room } => self.receive_probed(how, Some(self.length(room, how))),
            Step::Cancel { which, under_way } => {
                let receives = self.receives.iter().filter(|receive| receive.operation.is_under_way() == under_way);
                let receives: Vec<_> = receives.collect();
                if let Some(Receive { wish, operation, .. }) = receives.get(which % receives.len().max(1)) {
                    self.world.cancel(self.model.wishes[*wish].at, operation);
                }
            }
            Step::Free(which) => {
                let which = which % self.sends.len().max(1);
                if self.sends.get(which).is_some_and(|(_, how, _)| how.owner == Owner::Mpi) {
                    self.freed.push(self.sends.remove(which).2.free());
                }
            }
            Step::FreeComm(comm) => self.free_comm(comm % self.comms.len()),
            Step::Carry { queue_pair, count } => {
                let queue_pair = queue_pair % self.world.fabric.queue_pairs().max(1);
                (0..count).for_each(|_| _ = self.world.fabric.carry(queue_pair));
            }
            Step::Acknowledge { queue_pair, count } => {
                let queue_pair = queue_pair % self.world.fabric.queue_pairs().max(1);
                (0..count).for_each(|_| _ = self.world.fabric.acknowledge(queue_pair));
            }
            Step::Poll(at) => _ = self.world.poll(at % processes),
            Step::Settle => self.world.settle(),
            // Miri would take minutes to copy the longest messages.
            Step::Refuse { .. } if rails > 1 && cfg!(miri) => {}
            Step::Refuse { port, refuses } => self.world.fabric.refuse_memory(port % (processes * rails), refuses),
            // A peer without any port left would be lost.
            Step::Link { .. } if rails == 1 || self.fails => {}
            Step::Link { port, is_up, is_noticed } => {
                let port = port % (processes * rails);
                self.world.fabric.set_link(port, is_up);
                if is_noticed {
                    self.world.notice(port / rails);
                }
            }
            Step::Fail { .. } if !self.fails || self.has_failed => {}
            Step::Fail { queue_pair, reads } => {
                let count = self.world.fabric.queue_pairs();
                self.has_failed = (0..count).any(|next| self.world.fabric.fail((queue_pair + next) % count, reads));
            }
        }
        self.look();
    }

    /// Whether a process has ended the job. Panics if no failure permits that.
    fn has_ended(&self) -> bool {
        let has_ended = JOB_HAS_ENDED.get();
        let is_permitted = self.has_failed && (self.shape.rails == 1 || self.world.fabric.has_lost_message());
        assert!(!has_ended || is_permitted, "the job is ended, and nothing is lost");
        has_ended
    }

    /// Returns the length of a message, bytes: whole blocks if it has gaps; some of [`LONGEST`] with several ports.
    fn length(&self, which: usize, how: How) -> usize {
        // Several ports read only the longest messages; where queue pairs fail, more messages are that long.
        let shorter = if self.fails { 4 } else { LENGTHS.len() - LONGEST.len() };
        let longest = which.checked_sub(shorter).map(|which| &LONGEST[which % LONGEST.len()]);
        let length = *longest.filter(|_| self.shape.rails > 1).unwrap_or(&LENGTHS[which]);
        if how.has_gaps { length / BLOCK * BLOCK } else { length }
    }

    fn named(&self, Wanted { comm, from, tag }: Wanted) -> For {
        let from = (from % (self.shape.processes + 1)).checked_sub(1);
        For { comm: self.comms[comm % self.comms.len()], from, tag: tag.checked_sub(1).map(|tag| TAGS[tag]) }
    }

    fn wish(&mut self, at: usize, For { comm, from, tag }: For, takes: bool, got: Got) -> usize {
        self.model.wishes.push(Wish { at, comm, from, tag, made: self.now, takes, got });
        self.model.wishes.len() - 1
    }

    fn receive(&mut self, at: usize, wanted: For, how: How, room: usize) {
        let operation = self.world.receive(at, wanted, how, room);
        let wish = self.wish(at, wanted, true, Got::Nothing);
        self.receives.push(Receive { wish, how, room, operation });
    }

    fn start(&mut self, which: usize) {
        let which = which % (self.idle_sends.len() + self.idle_receives.len()).max(1);
        if which < self.idle_sends.len() {
            let (before, how, operation) = self.idle_sends.remove(which);
            let (message, again) = (self.model.sent.len(), Sent { done: None, ..self.model.sent[before] });
            operation.bytes.write(&laid_out(&content(message, again.length), again.length, how.has_gaps));
            self.world.start(again.from, &operation);
            self.model.sent.push(again);
            self.sends.push((message, how, operation));
        } else if let Some(which) = which.checked_sub(self.idle_sends.len()).filter(|at| *at < self.idle_receives.len())
        {
            let receive = self.idle_receives.remove(which);
            let Wish { at, comm, from, tag, .. } = self.model.wishes[receive.wish];
            receive.operation.bytes.write(&laid_out(&[], receive.room, receive.how.has_gaps));
            self.world.start(at, &receive.operation);
            let wish = self.wish(at, For { comm, from, tag }, true, Got::Nothing);
            self.receives.push(Receive { wish, ..receive });
        }
    }

    fn probe(&mut self, at: usize, wanted: For, takes: bool) {
        let Some(found) = self.world.probe(at, wanted, takes) else { return };
        let got = Got::Message { source: found.source as usize, tag: found.tag, length: found.length };
        let wish = self.wish(at, wanted, takes, got);
        if takes {
            self.probed.push((wish, found.message));
        }
    }

    /// Receives the oldest message that a probe took out, into a buffer of `room` bytes, or else of its length.
    fn receive_probed(&mut self, how: How, room: Option<usize>) {
        if self.probed.is_empty() {
            return;
        }
        let (wish, mut message) = self.probed.remove(0);
        let Wish { at, got: Got::Message { length, .. }, .. } = self.model.wishes[wish] else { return };
        let room = room.unwrap_or(length);
        let how = How { is_persistent: false, owner: Owner::Mpi, ..how };
        let operation = self.world.receive_probed(at, &mut message, how, room);
        self.receives.push(Receive { wish, how, room, operation });
    }

    /// Receives all messages that are left in a communicator (`None`: in all), and cancels every receive that waits.
    fn receive_all(&mut self, which: Option<usize>) {
        if self.shape.rails > 1 {
            (0..self.shape.processes).for_each(|at| self.world.notice(at));
        }
        self.world.settle();
        self.look();
        if self.has_ended() {
            return;
        }
        let Matches { takers, .. } = self.model.matches();
        for Receive { wish, operation, .. } in &self.receives {
            let Wish { at, comm, .. } = self.model.wishes[*wish];
            if which.is_none_or(|which| which == comm) {
                self.world.cancel(at, operation);
                assert!(operation.is_finished() && operation.status().is_cancelled, "wish {wish} has a message");
            }
        }
        self.look();
        for message in (0..takers.len()).filter(|message| takers[*message].is_none()) {
            let Sent { from, to, comm, tag, length, .. } = self.model.sent[message];
            if which.is_none_or(|which| which == comm) {
                self.receive(to, For { comm, from: Some(from), tag: Some(tag) }, How::NONBLOCKING, length);
            }
        }
        self.world.settle();
        self.look();
    }

    /// Frees a communicator, unless a blocking call is in it or a message may wait for a link, and makes another one.
    fn free_comm(&mut self, which: usize) {
        let comm = self.comms[which];
        if !self.world.fabric.is_up() {
            return;
        }
        self.receive_all(Some(comm));
        let is_in_call =
            |(message, how, _): &(usize, How, Operation)| how.owner.is_call() && self.model.sent[*message].comm == comm;
        if self.has_ended() || self.sends.iter().any(is_in_call) {
            return;
        }
        self.world.free_comm(comm);
        self.idle_sends.retain(|(message, ..)| self.model.sent[*message].comm != comm);
        self.idle_receives.retain(|receive| self.model.wishes[receive.wish].comm != comm);
        self.comms[which] = self.next_comm;
        self.next_comm += 1;
    }

    /// Notes in the model which sends and receives have finished.
    fn look(&mut self) {
        for (message, how, send) in self.sends.extract_if(.., |(.., send)| send.is_finished()) {
            self.model.sent[message].done = Some(self.now);
            if how.is_persistent && self.comms.contains(&self.model.sent[message].comm) {
                send.deactivate();
                self.idle_sends.push((message, how, send));
            }
        }
        for receive in self.receives.extract_if(.., |receive| receive.operation.is_finished()) {
            let Receive { wish, how, room, operation } = receive;
            let Status { source, tag, length, error, is_cancelled } = operation.status();
            let is_cut = length > room;
            assert_eq!(error, if is_cut { sys::MPI_ERR_TRUNCATE as i32 } else { sys::OPAL_SUCCESS });
            let message = Got::Message { source: source as usize, tag, length };
            let got = if is_cancelled { Got::Cancelled } else { message };
            let known = &mut self.model.wishes[wish];
            assert!(known.got == Got::Nothing || known.got == got, "{known:?} is {got:?}");
            known.got = got;
            if how.is_persistent {
                operation.deactivate();
                self.received.push((wish, how, room, Bytes::new(operation.bytes.copy())));
                self.idle_receives.push(Receive { wish, how, room, operation });
            } else {
                self.received.push((wish, how, room, operation.free()));
            }
        }
    }

    /// Ends the history: receives every message, and checks the bytes of all receives.
    fn end(mut self) {
        let Shape { processes, rails, .. } = self.shape;
        self.now += 1;
        for port in 0..processes * rails {
            self.world.fabric.refuse_memory(port, false);
            self.world.fabric.set_link(port, true);
        }
        while !self.probed.is_empty() {
            self.receive_probed(How::NONBLOCKING, None);
        }
        self.receive_all(None);
        if self.has_ended() {
            return;
        }
        let Matches { of_wishes, takers } = self.model.matches();
        assert!(takers.iter().all(Option::is_some), "messages that nobody got: {takers:?}");
        assert!(self.sends.is_empty() && self.receives.is_empty(), "operations that are not done");
        for (wish, how, room, bytes) in &self.received {
            let sent =
                of_wishes[*wish].map_or_else(Vec::new, |message| content(message, self.model.sent[message].length));
            let mut expected = laid_out(&sent[..sent.len().min(*room)], *room, how.has_gaps);
            let bytes = bytes.copy();
            if sent.len() > *room && !how.has_gaps {
                // A sender with gaps does not split the block that is cut.
                let cut = room / BLOCK * BLOCK..*room;
                expected[cut.clone()].copy_from_slice(&bytes[cut]);
            }
            assert_eq!(bytes, expected, "the bytes of {:?}", self.model.wishes[*wish]);
        }
        self.idle_sends.clear();
        self.idle_receives.clear();
        self.world.is_at_rest();
    }
}

fn run(shape: Shape, comms: usize, fails: bool, steps: &[Step]) {
    let mut history = History::new(shape, comms, fails);
    for step in steps {
        history.step(*step);
        if history.has_ended() {
            return;
        }
    }
    history.end();
}

/// Upper bound of the number of steps in a history.
const STEPS: usize = if cfg!(miri) { 16 } else { 160 };

fn cases() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(96);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn each_receive_gets_a_message_that_mpi_permits(
        steps in prop::collection::vec(step(), 1..STEPS),
        processes in prop_oneof![5 => Just(2), 4 => 3..5_usize, 1 => Just(8)],
        per_host in 1..4_usize,
        comms in 1..3_usize,
        unexpected_memory in prop_oneof![3 => Just(0_u64), 2 => Just(600), 1 => Just(3000), 1 => Just(1 << 20)],
    ) {
        run(Shape { processes, per_host, rails: 1, read_size: READ, unexpected_memory }, comms, false, &steps);
    }

    #[test]
    fn each_receive_gets_a_message_that_mpi_permits_while_ports_lose_and_regain_their_links(
        steps in prop::collection::vec(step(), 1..STEPS),
        processes in 2..4_usize,
        rails in 2..4_usize,
        unexpected_memory in prop_oneof![3 => Just(0_u64), 2 => Just(600), 1 => Just(3000), 1 => Just(1 << 20)],
    ) {
        run(Shape { processes, per_host: 1, rails, read_size: 16 << 10, unexpected_memory }, 2, false, &steps);
    }
}

proptest! {
    #![proptest_config(cases())]

    // Under Miri, the records of an ended job would be leaks.
    #[cfg(not(miri))]
    #[test]
    fn a_queue_pair_that_fails_ends_the_job_or_loses_nothing(
        steps in prop::collection::vec(step(), 1..STEPS),
        processes in 2..4_usize,
        rails in 1..4_usize,
    ) {
        let shape = Shape { processes, per_host: 1, rails, read_size: 16 << 10, unexpected_memory: 3000 };
        run(shape, 2, true, &steps);
    }
}
