// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random histories: processes send, receive, probe and cancel in any order, and the fabric moves in any order. Each
//! receive must get a message that MPI permits, with the right bytes. At the end all requests are finished, and no
//! sender is held back.

use super::model::{Got, Matches, Model, Sent, Wish};
use super::*;
use crate::pml::striped::SHORTEST;
use proptest::prelude::*;

/// One step of a history. An index is taken modulo the number of processes, ports, queue pairs or receives.
#[derive(Debug, Clone, Copy)]
enum Step {
    Send {
        from: usize,
        to: usize,
        comm: usize,
        tag: usize,
        length: usize,
        is_synchronous: bool,
    },
    Receive {
        at: usize,
        wanted: Wanted,
        room: usize,
    },
    /// `takes`: a matched probe, which takes the message out.
    Probe {
        at: usize,
        wanted: Wanted,
        takes: bool,
    },
    /// Receives the oldest message that a probe took out.
    ReceiveProbed {
        room: usize,
    },
    Cancel {
        which: usize,
    },
    /// The fabric carries `count` requests of a queue pair.
    Carry {
        queue_pair: usize,
        count: usize,
    },
    Acknowledge {
        queue_pair: usize,
        count: usize,
    },
    Poll {
        at: usize,
    },
    /// The fabric and all processes move until nothing happens any more.
    Settle,
    /// A port refuses to register memory, or accepts it again.
    Refuse {
        port: usize,
        refuses: bool,
    },
    /// The link of a port goes down or up, in worlds with several ports per process. `is_told`: its process polls until
    /// it has noticed.
    Link {
        port: usize,
        is_up: bool,
        is_told: bool,
    },
}

/// The communicator, source and tag of a receive or probe. Source and tag 0 are wildcards; others count from 1.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    comm: usize,
    from: usize,
    tag: usize,
}

/// Lengths around the shortest message that several ports read, bytes.
const LONGEST: [usize; 3] = [SHORTEST - 1, SHORTEST, 3 * SHORTEST + 1];

/// Three tags of a program, and a negative one of the MPI library itself.
const TAGS: [i32; 4] = [0, 1, 7, -20];

fn wanted() -> impl Strategy<Value = Wanted> {
    (0..2_usize, 0..9_usize, 0..5_usize).prop_map(|(comm, from, tag)| Wanted { comm, from, tag })
}

fn step() -> impl Strategy<Value = Step> {
    let length = 0..LENGTHS.len();
    let send = (0..8_usize, 0..8_usize, 0..2_usize, 0..4_usize, length.clone(), prop::bool::weighted(0.2)).prop_map(
        |(from, to, comm, tag, length, is_synchronous)| Step::Send { from, to, comm, tag, length, is_synchronous },
    );
    let receive = (0..8_usize, wanted(), length.clone());
    prop_oneof![
        12 => send,
        10 => receive.prop_map(|(at, wanted, room)| Step::Receive { at, wanted, room }),
        2 => (0..8_usize, wanted(), any::<bool>()).prop_map(|(at, wanted, takes)| Step::Probe { at, wanted, takes }),
        1 => length.prop_map(|room| Step::ReceiveProbed { room }),
        1 => (0..100_usize).prop_map(|which| Step::Cancel { which }),
        6 => (0..64_usize, 1..20_usize).prop_map(|(queue_pair, count)| Step::Carry { queue_pair, count }),
        4 => (0..64_usize, 1..20_usize).prop_map(|(queue_pair, count)| Step::Acknowledge { queue_pair, count }),
        8 => (0..8_usize).prop_map(|at| Step::Poll { at }),
        1 => Just(Step::Settle),
        1 => (0..8_usize, any::<bool>()).prop_map(|(port, refuses)| Step::Refuse { port, refuses }),
        2 => (0..8_usize, any::<bool>(), any::<bool>()).prop_map(|(port, is_up, is_told)| Step::Link { port, is_up, is_told }),
    ]
}

struct History {
    shape: Shape,
    world: World,
    model: Model,
    /// Unfinished sends, each with the index of its message in the model.
    sends: Vec<(usize, Operation)>,
    /// Receives, each with the index of its wish in the model and the size of its buffer.
    receives: Vec<(usize, usize, Operation)>,
    /// Matched probes whose message was not received yet: index of the wish, and handle of the message.
    probed: Vec<(usize, u64)>,
    now: usize,
}

impl History {
    fn new(shape: Shape) -> Self {
        let (world, model) = (World::new(shape), Model::default());
        History { shape, world, model, sends: Vec::new(), receives: Vec::new(), probed: Vec::new(), now: 0 }
    }

    fn step(&mut self, step: Step) {
        let Shape { processes, communicators, rails, .. } = self.shape;
        self.now += 1;
        match step {
            Step::Send { from, to, comm, tag, length, is_synchronous } => {
                let (from, to, comm) = (from % processes, to % processes, comm % communicators);
                let (message, length, tag) = (self.model.sent.len(), self.length(length), TAGS[tag]);
                self.model.sent.push(Sent { from, to, comm, tag, length, is_synchronous, done: None });
                let mode = if is_synchronous { Mode::Synchronous } else { Mode::Standard };
                match self.world.send(from, (to, comm, tag), mode, &content(message, length)) {
                    Some(send) => self.sends.push((message, send)),
                    None => self.model.sent[message].done = Some(self.now),
                }
            }
            Step::Receive { at, wanted, room } => self.receive(at % processes, self.named(wanted), self.length(room)),
            Step::Probe { at, wanted, takes } => self.probe(at % processes, self.named(wanted), takes),
            Step::ReceiveProbed { room } => self.receive_probed(Some(self.length(room))),
            Step::Cancel { which } => {
                if let Some((wish, _, receive)) = self.receives.get(which % self.receives.len().max(1)) {
                    self.world.cancel(self.model.wishes[*wish].at, receive);
                }
            }
            Step::Carry { queue_pair, count } => {
                let queue_pair = queue_pair % self.world.fabric.queue_pairs().max(1);
                (0..count).for_each(|_| _ = self.world.fabric.carry(queue_pair));
            }
            Step::Acknowledge { queue_pair, count } => {
                let queue_pair = queue_pair % self.world.fabric.queue_pairs().max(1);
                (0..count).for_each(|_| _ = self.world.fabric.acknowledge(queue_pair));
            }
            Step::Poll { at } => _ = self.world.poll(at % processes),
            Step::Settle => self.world.settle(),
            // Miri would take minutes to copy the longest messages.
            Step::Refuse { .. } if rails > 1 && cfg!(miri) => {}
            Step::Refuse { port, refuses } => self.world.fabric.refuse_memory(port % (processes * rails), refuses),
            Step::Link { .. } if rails == 1 => {}
            Step::Link { port, is_up, is_told } => {
                let port = port % (processes * rails);
                self.world.fabric.set_link(port, is_up);
                if is_told {
                    self.world.notice(port / rails);
                }
            }
        }
        self.look();
    }

    /// Length of a message in bytes. With several ports, the last of [`LENGTHS`] become those of [`LONGEST`].
    fn length(&self, which: usize) -> usize {
        let longest = LONGEST.get(which.wrapping_sub(LENGTHS.len() - LONGEST.len()));
        *longest.filter(|_| self.shape.rails > 1).unwrap_or(&LENGTHS[which])
    }

    fn named(&self, Wanted { comm, from, tag }: Wanted) -> For {
        let from = (from % (self.shape.processes + 1)).checked_sub(1);
        For { comm: comm % self.shape.communicators, from, tag: tag.checked_sub(1).map(|tag| TAGS[tag]) }
    }

    fn wish(&mut self, at: usize, For { comm, from, tag }: For, takes: bool, got: Got) -> usize {
        self.model.wishes.push(Wish { at, comm, from, tag, made: self.now, takes, got });
        self.model.wishes.len() - 1
    }

    fn receive(&mut self, at: usize, wanted: For, room: usize) {
        let receive = self.world.receive(at, wanted, room);
        let wish = self.wish(at, wanted, true, Got::Nothing);
        self.receives.push((wish, room, receive));
    }

    fn probe(&mut self, at: usize, wanted: For, takes: bool) {
        let Some(found) = self.world.probe(at, wanted, takes) else { return };
        let got = Got::Message { source: found.source as usize, tag: found.tag, length: found.length };
        let wish = self.wish(at, wanted, takes, got);
        if takes {
            self.probed.push((wish, found.handle));
        }
    }

    /// Receives the oldest message that a probe took out, into a buffer of `room` bytes; `None`: of its length.
    fn receive_probed(&mut self, room: Option<usize>) {
        if self.probed.is_empty() {
            return;
        }
        let (wish, handle) = self.probed.remove(0);
        let Wish { at, comm, got: Got::Message { length, .. }, .. } = self.model.wishes[wish] else { return };
        let room = room.unwrap_or(length);
        self.receives.push((wish, room, self.world.receive_probed(at, comm, handle, room)));
    }

    /// Notes in the model which sends and receives have finished.
    fn look(&mut self) {
        let (done, under_way) = std::mem::take(&mut self.sends).into_iter().partition(|(_, send)| send.is_finished());
        self.sends = under_way;
        for (message, _) in done as Vec<(usize, Operation)> {
            self.model.sent[message].done = Some(self.now);
        }
        for (wish, room, receive) in self.receives.iter().filter(|(.., receive)| receive.is_finished()) {
            let Status { source, tag, length, error, is_cancelled } = receive.status();
            let is_cut = length > *room;
            assert_eq!(error, if is_cut { sys::MPI_ERR_TRUNCATE as i32 } else { sys::OPAL_SUCCESS });
            let message = Got::Message { source: source as usize, tag, length };
            let got = if is_cancelled { Got::Cancelled } else { message };
            let wish = &mut self.model.wishes[*wish];
            assert!(wish.got == Got::Nothing || wish.got == got, "{wish:?} is {got:?}");
            wish.got = got;
        }
    }

    /// Ends the history: receives every message that no receive has taken, cancels every receive that still waits, and
    /// checks the bytes of all receives.
    fn end(mut self) {
        let Shape { processes, rails, .. } = self.shape;
        self.now += 1;
        for port in 0..processes * rails {
            self.world.fabric.refuse_memory(port, false);
            self.world.fabric.set_link(port, true);
        }
        (0..processes).for_each(|at| self.world.notice(at));
        while !self.probed.is_empty() {
            self.receive_probed(None);
        }
        self.world.settle();
        self.look();
        let Matches { takers, .. } = self.model.matches();
        for (wish, _, receive) in self.receives.iter().filter(|(.., receive)| !receive.is_finished()) {
            self.world.cancel(self.model.wishes[*wish].at, receive);
            assert!(
                receive.is_finished() && receive.status().is_cancelled,
                "wish {wish} has a message and is not done"
            );
        }
        self.look();
        for message in (0..takers.len()).filter(|message| takers[*message].is_none()) {
            let Sent { from, to, comm, tag, length, .. } = self.model.sent[message];
            self.receive(to, For { comm, from: Some(from), tag: Some(tag) }, length);
        }
        self.world.settle();
        self.look();
        let Matches { of_wishes, takers } = self.model.matches();
        assert!(takers.iter().all(Option::is_some), "messages that nobody got: {takers:?}");
        assert!(self.sends.is_empty(), "sends that are not done");
        for (wish, room, receive) in &self.receives {
            let bytes =
                of_wishes[*wish].map_or_else(Vec::new, |message| content(message, self.model.sent[message].length));
            let mut expected = vec![EMPTY; room + GUARD];
            let length = bytes.len().min(*room);
            expected[..length].copy_from_slice(&bytes[..length]);
            assert_eq!(receive.bytes.copy(), expected, "the bytes of {:?}", self.model.wishes[*wish]);
        }
        self.world.is_at_rest();
    }
}

fn run(shape: Shape, steps: &[Step]) {
    let mut history = History::new(shape);
    for step in steps {
        history.step(*step);
    }
    history.end();
}

/// Upper bound of the number of steps in a history.
const STEPS: usize = if cfg!(miri) { 40 } else { 160 };

fn cases() -> ProptestConfig {
    ProptestConfig { cases: if cfg!(miri) { 2 } else { 128 }, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn processes_get_what_mpi_permits_whatever_they_do(
        steps in prop::collection::vec(step(), 1..STEPS),
        processes in prop_oneof![9 => 2..5_usize, 1 => Just(8)],
        communicators in 1..3_usize,
        unexpected_memory in prop_oneof![Just(0_u64), Just(600), Just(3000), Just(1 << 20)],
    ) {
        run(Shape { processes, communicators, rails: 1, read_size: READ, unexpected_memory }, &steps);
    }

    #[test]
    fn the_same_holds_of_processes_with_several_ports_that_lose_their_links_and_have_them_again(
        steps in prop::collection::vec(step(), 1..STEPS),
        processes in 2..4_usize,
        rails in 2..4_usize,
        unexpected_memory in prop_oneof![Just(0_u64), Just(600), Just(3000), Just(1 << 20)],
    ) {
        run(Shape { processes, communicators: 2, rails, read_size: 16 << 10, unexpected_memory }, &steps);
    }
}
