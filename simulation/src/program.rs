// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random programs: the operations of some processes, the limits of these, and the seed of the schedule.
//!
//! [`Program::of_seed`] makes one from a seed; its `Display` is a test that can be pasted. Called by `main` and the
//! tests of the crate. Grade: test. Threads: plain data. Tests: below.

use std::fmt;

use ibex::messenger::header::{EAGER_SIZE, MAX_SIZE};
use ibex::transport::adapter::simulated::Sizes;

use crate::process::Settings;
use crate::random::Random;

/// An operation of a process (`at`, or `from` for a send). Nothing in a program waits for an operation to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the terms are MPI's")]
pub enum Operation {
    /// Starts a send.
    Send { from: u32, to: u32, context: u32, tag: i32, length: usize, synchronous: bool, gaps: bool },
    /// Posts a receive; `None`: any source, any tag.
    Receive { at: u32, from: Option<u32>, context: u32, tag: Option<i32>, room: usize, gaps: bool },
    /// Looks for a message; `takes`: a matched probe, which takes it out.
    Probe { at: u32, from: Option<u32>, context: u32, tag: Option<i32>, takes: bool },
    /// Receives the oldest message that a probe of this process took out, if there is one.
    ReceiveProbed { at: u32, room: usize, gaps: bool },
    /// Cancels one of the receives of this process, if it has one that has not ended.
    Cancel { at: u32, which: usize },
    /// Everything goes on until nothing moves any more.
    Settle { at: u32 },
    /// A port of this process refuses to register memory, or accepts it again.
    Refuse { at: u32, rail: usize, refuses: bool },
    /// The link of a port of this process goes down or up. `noticed`: the process polls until it has noticed.
    Link { at: u32, rail: usize, up: bool, noticed: bool },
    /// The next queue pair with a request fails, once in a program. `reads`: one that has nothing but reads.
    Fail { at: u32, queue_pair: usize, reads: bool },
    /// This process makes no progress during so many steps of the schedule.
    Stop { at: u32, steps: usize },
    /// This process dies.
    Die { at: u32 },
}

impl Operation {
    /// Returns the process whose operation it is.
    pub const fn at(&self) -> u32 {
        match *self {
            Operation::Send { from: at, .. }
            | Operation::Receive { at, .. }
            | Operation::Probe { at, .. }
            | Operation::ReceiveProbed { at, .. }
            | Operation::Cancel { at, .. }
            | Operation::Settle { at }
            | Operation::Refuse { at, .. }
            | Operation::Link { at, .. }
            | Operation::Fail { at, .. }
            | Operation::Stop { at, .. }
            | Operation::Die { at } => at,
        }
    }

    /// Returns the operation in a program without process `gone`, where later processes have lower numbers; `None` if
    /// it needs that process.
    pub(crate) fn without(self, gone: u32) -> Option<Self> {
        let other = |one: u32| (one != gone).then_some(if one > gone { one - 1 } else { one });
        let source = |from: Option<u32>| from.map_or(Some(None), |from| other(from).map(Some));
        Some(match self {
            Operation::Send { from, to, context, tag, length, synchronous, gaps } => {
                Operation::Send { from: other(from)?, to: other(to)?, context, tag, length, synchronous, gaps }
            }
            Operation::Receive { at, from, context, tag, room, gaps } => {
                Operation::Receive { at: other(at)?, from: source(from)?, context, tag, room, gaps }
            }
            Operation::Probe { at, from, context, tag, takes } => {
                Operation::Probe { at: other(at)?, from: source(from)?, context, tag, takes }
            }
            Operation::ReceiveProbed { at, room, gaps } => Operation::ReceiveProbed { at: other(at)?, room, gaps },
            Operation::Cancel { at, which } => Operation::Cancel { at: other(at)?, which },
            Operation::Settle { at } => Operation::Settle { at: other(at)? },
            Operation::Refuse { at, rail, refuses } => Operation::Refuse { at: other(at)?, rail, refuses },
            Operation::Link { at, rail, up, noticed } => Operation::Link { at: other(at)?, rail, up, noticed },
            Operation::Fail { at, queue_pair, reads } => Operation::Fail { at: other(at)?, queue_pair, reads },
            Operation::Stop { at, steps } => Operation::Stop { at: other(at)?, steps },
            Operation::Die { at } => Operation::Die { at: other(at)? },
        })
    }
}

/// A program of some processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Number of processes.
    pub processes: u32,
    /// Number of ports of each.
    pub rails: usize,
    /// Number of processes on each machine.
    pub per_host: u32,
    /// Number of receive slots of a port.
    pub slots: u32,
    /// Bytes of unexpected messages beyond which a process holds senders back.
    pub unexpected_memory: u64,
    /// Most unanswered announcements to a peer in a communicator.
    pub window: u32,
    /// Of so many steps of the schedule, the network loses or repeats a hello in one; 0: in none.
    pub hello_faults: usize,
    /// Of so many steps of the schedule, an adapter has no room for the next request in one; 0: in none.
    pub post_faults: usize,
    /// Whether the numbers of requests wrap soon.
    pub wraps: bool,
    /// Seed of the schedule: who goes on next, and what the network does.
    pub schedule: u64,
    /// The operations. Those of one process keep their order.
    pub operations: Vec<Operation>,
}

/// Longest message inside a work request, longest eager one, and size of a receive slot, with headers, bytes.
const INLINE: usize = 64;
const EAGER: usize = 256;
const SLOT: usize = 320;

/// Longest RDMA read with one port, bytes.
const READ: usize = 512;

/// Longest RDMA read with several ports, which share messages of at least 64 KiB.
const LONG_READ: usize = 16 << 10;

/// Requests of a queue pair.
const DEPTH: u32 = 8;

/// Lengths around each bound, bytes: none; kept without an allocation; inside the work request; eager; a fragment; one
/// read; more reads and fragments than may be in flight.
const LENGTHS: [usize; 17] = [
    0,
    1,
    8,
    40,
    41,
    INLINE - EAGER_SIZE,
    INLINE - EAGER_SIZE + 1,
    EAGER - MAX_SIZE,
    EAGER - MAX_SIZE + 1,
    EAGER,
    SLOT,
    READ - 1,
    READ,
    READ + 1,
    2 * READ + 1,
    5 * READ,
    6 * READ + 7,
];

/// Lengths around the shortest message that several ports read, bytes.
const LONGEST: [usize; 3] = [(64 << 10) - 1, 64 << 10, (192 << 10) + 1];

/// Tags of a program, and a negative one of the MPI library itself.
const TAGS: [i32; 4] = [0, 1, 7, -20];

/// Two processes that do nothing.
impl Default for Program {
    fn default() -> Self {
        Program {
            processes: 2,
            rails: 1,
            per_host: 1,
            slots: 16,
            unexpected_memory: 1 << 20,
            window: 8,
            hello_faults: 0,
            post_faults: 0,
            wraps: false,
            schedule: 0,
            operations: Vec::new(),
        }
    }
}

impl Program {
    /// Makes the program of a seed, with `processes` processes if that is given.
    pub fn of_seed(seed: u64, processes: Option<u32>) -> Self {
        let mut random = Random::new(seed, 0);
        let some = match random.by_weight(&[10, 6, 3]) {
            0 => 2,
            1 => 3 + random.below(2) as u32,
            _ => 5 + random.below(4) as u32,
        };
        let rails = if random.one_in(4) { 2 } else { 1 };
        let mut program = Program {
            processes: processes.unwrap_or(some).max(1),
            rails,
            per_host: if random.one_in(4) { random.one_of(&[2, 2, 3, 8]) } else { 1 },
            slots: random.one_of(&[8, 16, 16, 32]),
            unexpected_memory: random.one_of(&[0, 0, 600, 3000, 1 << 20]),
            window: random.one_of(&[1, 2, 8]),
            hello_faults: random.one_of(&[0, 0, 0, 0, 3, 20]),
            post_faults: random.one_of(&[0, 0, 0, 10]),
            wraps: random.one_in(3),
            schedule: random.next(),
            operations: Vec::new(),
        };
        let flood = random.one_in(8);
        let links = rails > 1 && random.one_in(2);
        // A peer without any port left would be lost.
        let fails = rails > 1 && !links && random.one_in(2);
        let generator = Generator {
            faults: [4 * usize::from(links), 4 * usize::from(fails), usize::from(random.one_in(4))],
            longest: if fails { 3 } else { 16 },
            contexts: 1 + random.below(3) as u32,
            own_tags: random.one_in(3),
            gaps: random.one_of(&[0, 8, 3]),
            synchronous: random.one_of(&[0, 6, 2]),
            expected: if flood { 0 } else { random.one_of(&[0, 2, 4]) },
            flood,
        };
        let count = if flood || random.one_in(8) { 200 + random.below(400) } else { 4 + random.below(100) };
        while program.operations.len() < count {
            generator.add(&mut program, &mut random);
        }
        // Nothing tells a process that another one of its machine has died.
        if program.processes > 2 && program.per_host == 1 && random.one_in(12) {
            let (at, place) = (random.below(program.processes as usize) as u32, random.below(program.operations.len()));
            program.operations.insert(place, Operation::Die { at });
        }
        program
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings {
            sizes: Sizes {
                inline: INLINE as u32,
                bounce: EAGER as u32,
                receive: SLOT as u32,
                slots: self.slots,
                depth: DEPTH,
            },
            eager: EAGER,
            read: if self.rails > 1 { LONG_READ } else { READ } as u32,
            unexpected_memory: self.unexpected_memory,
            window: self.window,
            buffers: 4,
            rails: self.rails,
            per_host: self.per_host,
            wraps: self.wraps,
            // A process that only waits for one that has died learns of it by a probe.
            probe_interval: if self.operations.iter().any(|one| matches!(one, Operation::Die { .. })) { 20 } else { 0 },
        }
    }
}

/// What the programs of a seed prefer.
struct Generator {
    contexts: u32,
    /// Whether the MPI library sends as well, with negative tags.
    own_tags: bool,
    /// One message in so many has gaps, or is synchronous; 0: none.
    gaps: usize,
    synchronous: usize,
    /// Of five sends, so many get a receive that names them.
    expected: usize,
    /// Whether most messages go to one process, in bursts.
    flood: bool,
    /// Weights of faults: links that go down and up, a queue pair that fails, processes that stop.
    faults: [usize; 3],
    /// With several ports, one message in so many is as long as several ports read.
    longest: usize,
}

impl Generator {
    fn tag(&self, random: &mut Random) -> i32 {
        TAGS[random.below(if self.own_tags { 4 } else { 3 })]
    }

    fn gaps(&self, random: &mut Random) -> bool {
        self.gaps > 0 && random.one_in(self.gaps)
    }

    fn length(&self, rails: usize, random: &mut Random) -> usize {
        if rails > 1 && random.one_in(self.longest) { random.one_of(&LONGEST) } else { random.one_of(&LENGTHS) }
    }

    /// Adds an operation, or some.
    fn add(&self, program: &mut Program, random: &mut Random) {
        let processes = program.processes as usize;
        let at = random.below(processes) as u32;
        let context = random.below(self.contexts as usize) as u32;
        match random.by_weight(&[24, 10, 4, 3, 2, 1, 2, self.faults[0], self.faults[1], self.faults[2]]) {
            0 => self.send(program, random, at, context),
            1 => {
                let from = (!random.one_in(2)).then(|| random.below(processes) as u32);
                let tag = (!random.one_in(2)).then(|| self.tag(random));
                let (room, gaps) = (self.length(program.rails, random), self.gaps(random));
                program.operations.push(Operation::Receive { at, from, context, tag, room, gaps });
            }
            2 => {
                let from = random.one_in(2).then(|| random.below(processes) as u32);
                let tag = random.one_in(2).then(|| self.tag(random));
                program.operations.push(Operation::Probe { at, from, context, tag, takes: random.one_in(2) });
            }
            3 => {
                let (room, gaps) = (self.length(program.rails, random), self.gaps(random));
                program.operations.push(Operation::ReceiveProbed { at, room, gaps });
            }
            4 => program.operations.push(Operation::Cancel { at, which: random.below(8) }),
            5 => program.operations.push(Operation::Settle { at }),
            6 => {
                let (rail, refuses) = (random.below(program.rails), random.one_in(2));
                program.operations.push(Operation::Refuse { at, rail, refuses });
            }
            7 => {
                let rail = random.below(program.rails);
                let (up, noticed) = (random.one_in(2), random.one_in(2));
                program.operations.push(Operation::Link { at, rail, up, noticed });
            }
            8 => {
                let (queue_pair, reads) = (random.below(64), !random.one_in(4));
                program.operations.push(Operation::Fail { at, queue_pair, reads });
            }
            _ => program.operations.push(Operation::Stop { at, steps: random.one_of(&[10, 100, 1000]) }),
        }
    }

    fn send(&self, program: &mut Program, random: &mut Random, from: u32, context: u32) {
        let to = if self.flood { 0 } else { random.below(program.processes as usize) as u32 };
        let burst = if random.one_in(if self.flood { 2 } else { 12 }) { 1 + random.below(60) } else { 1 };
        let tag = self.tag(random);
        let is_of_short = self.flood && random.one_in(2);
        for _ in 0..burst {
            let length = if is_of_short { EAGER - MAX_SIZE } else { self.length(program.rails, random) };
            let synchronous = self.synchronous > 0 && random.one_in(self.synchronous);
            let gaps = self.gaps(random);
            program.operations.push(Operation::Send { from, to, context, tag, length, synchronous, gaps });
            if random.below(5) < self.expected {
                let from = (!random.one_in(4)).then_some(from);
                let tag = (tag < 0 || !random.one_in(4)).then_some(tag);
                let room = if random.one_in(8) { self.length(program.rails, random) } else { length };
                let receive = Operation::Receive { at: to, from, context, tag, room, gaps: self.gaps(random) };
                let before = random.below(4).min(program.operations.len());
                program.operations.insert(program.operations.len() - before, receive);
            }
        }
    }
}

/// A test that can be pasted.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Program { processes, rails, per_host, slots, unexpected_memory, window, .. } = self;
        let Program { hello_faults, post_faults, wraps, schedule, operations, .. } = self;
        writeln!(f, "    check(&Program {{")?;
        writeln!(f, "        processes: {processes},")?;
        writeln!(f, "        rails: {rails},")?;
        writeln!(f, "        per_host: {per_host},")?;
        writeln!(f, "        slots: {slots},")?;
        writeln!(f, "        unexpected_memory: {unexpected_memory},")?;
        writeln!(f, "        window: {window},")?;
        writeln!(f, "        hello_faults: {hello_faults},")?;
        writeln!(f, "        post_faults: {post_faults},")?;
        writeln!(f, "        wraps: {wraps},")?;
        writeln!(f, "        schedule: 0x{schedule:x},")?;
        writeln!(f, "        operations: vec![")?;
        for operation in operations {
            writeln!(f, "            Operation::{operation:?},")?;
        }
        writeln!(f, "        ],")?;
        write!(f, "    }});")
    }
}
