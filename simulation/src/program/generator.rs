// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the program of a seed: what it prefers, then its operations, one after another. Called by `main` and the tests
//! of the crate. Grade: test. Threads: plain data. Tests: those of the crate.

use ibex::messenger::header::{EAGER_SIZE, MAX_SIZE};

use super::{EAGER, Fault, INLINE, Mode, Operation, Program, READ, SLOT};
use crate::random::Random;

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

/// Tags of a program: that fit a short header, just do not, and negative ones of the MPI library itself.
const TAGS: [i32; 6] = [0, 1, 7, 1 << 23, -20, i32::MIN + 1];

/// Context numbers: small ones, the last that fits a short header, and large ones.
const CONTEXTS: [u32; 5] = [0, 1, 2, 1 << 23, (1 << 24) - 1];

/// What the programs of a seed prefer.
struct Generator {
    contexts: [u32; 3],
    /// Of the tags, so many are used, from these on.
    tags: (usize, usize),
    /// One message in so many has gaps; one request is persistent; 0: none.
    gaps: usize,
    persistent: usize,
    /// Weight of probes.
    probes: usize,
    /// Weights of the modes of a send.
    modes: [usize; 4],
    /// Of five sends, so many get a receive that names them.
    expected: usize,
    /// Whether most messages go to one process, in bursts.
    flood: bool,
    /// Weights of faults: links that go down and up, a connection that fails, processes that stop; of new
    /// communicators, and of processes that part.
    faults: [usize; 5],
    /// With several ports, one message in so many is as long as several ports read.
    longest: usize,
}

impl Program {
    /// Makes the program of a seed, with `processes` processes if that is given.
    pub fn of_seed(seed: u64, processes: Option<u32>) -> Self {
        Program::made(Random::new(seed, 0), processes, false)
    }

    /// Makes the program of a seed whose processes outlive others: some die, or a connection fails.
    pub fn with_lost_peers(seed: u64, processes: Option<u32>) -> Self {
        Program::made(Random::new(seed, 2), processes, true)
    }

    fn made(mut random: Random, processes: Option<u32>, outlives: bool) -> Self {
        let some = match random.by_weight(&[10, 6, 3]) {
            0 => 2,
            1 => 3 + random.below(2) as u32,
            _ => 5 + random.below(4) as u32,
        };
        let rails = if !outlives && random.one_in(4) { 2 + usize::from(random.one_in(2)) } else { 1 };
        let mut program = Program {
            processes: processes.unwrap_or(some).max(if outlives { 2 } else { 1 }),
            rails,
            per_host: if !outlives && random.one_in(4) { random.one_of(&[2, 2, 3, 8]) } else { 1 },
            slots: random.one_of(&[8, 16, 16, 32]),
            unexpected_memory: random.one_of(&[0, 0, 600, 3000, 1 << 20]),
            window: random.one_of(&[1, 2, 8]),
            hello_faults: random.one_of(&[0, 0, 0, 0, 3, 20]),
            post_faults: random.one_of(&[0, 0, 0, 10]),
            buffers: random.one_of(&[1, 4, 4]),
            bounces: random.one_of(&[1, 3, 64]),
            attached: random.one_of(&[0, 700, 4000, 1 << 20]),
            wraps: random.one_in(3),
            outlives,
            schedule: random.next(),
            operations: Vec::new(),
        };
        let flood = random.one_in(8);
        let links = rails > 1 && random.one_in(2);
        // A peer without any port left is lost.
        let fails = random.one_in(if rails > 1 || outlives { 2 } else { 16 });
        // Then fragments to others wait for the buffers of those to the lost peer.
        let is_for_buffers = fails && rails == 1 && !(outlives && random.one_in(2));
        program.buffers = if is_for_buffers { 1 } else { program.buffers };
        let renews = !outlives && random.one_in(6);
        let generator = Generator {
            faults: [
                4 * usize::from(links),
                4 * usize::from(fails),
                usize::from(random.one_in(4)),
                2 * usize::from(renews),
                2 * usize::from(program.per_host == 1 && !outlives && random.one_in(8)),
            ],
            longest: if fails { 3 } else { 16 },
            contexts: [(); 3].map(|()| random.one_of(&CONTEXTS)),
            tags: random.one_of(&[(0, 3), (0, 3), (1, 3), (2, 4)]),
            gaps: if is_for_buffers { 2 } else { random.one_of(&[0, 8, 3, 2]) },
            probes: random.one_of(&[4, 4, 4, 24]),
            persistent: random.one_of(&[0, 0, 8, 3]),
            modes: [8, random.one_of(&[0, 2, 8]), random.one_of(&[0, 0, 2]), random.one_of(&[0, 1])],
            expected: if flood { 0 } else { random.one_of(&[0, 2, 4]) },
            flood,
        };
        let count = if flood || random.one_in(8) { 200 + random.below(400) } else { 4 + random.below(100) };
        while program.operations.len() < count {
            generator.add(&mut program, &mut random);
        }
        // A process does not learn that another one of its machine has died.
        let deaths = if outlives {
            random.below(program.processes as usize).max(usize::from(!fails))
        } else {
            usize::from(program.processes > 2 && program.per_host == 1 && random.one_in(12))
        };
        for _ in 0..deaths {
            let (at, place) = (random.below(program.processes as usize) as u32, random.below(program.operations.len()));
            program.operations.insert(place, Operation::Die { at });
        }
        program
    }
}

impl Generator {
    fn tag(&self, random: &mut Random) -> i32 {
        TAGS[self.tags.0 + random.below(self.tags.1)]
    }

    fn some(one_in: usize, random: &mut Random) -> bool {
        one_in > 0 && random.one_in(one_in)
    }

    fn length(&self, rails: usize, random: &mut Random) -> usize {
        match random.below(12) {
            _ if rails > 1 && random.one_in(self.longest) => random.one_of(&LONGEST),
            0 => random.below(6 * READ),
            _ => random.one_of(&LENGTHS),
        }
    }

    /// Adds an operation, or some.
    fn add(&self, program: &mut Program, random: &mut Random) {
        let processes = program.processes as usize;
        let at = random.below(processes) as u32;
        let context = random.one_of(&self.contexts);
        let [links, fails, stops, renews, parts] = self.faults;
        let (starts, frees) = if self.persistent > 0 { (16, 2) } else { (0, 0) };
        let probes = self.probes;
        let weights = [24, 10, probes, probes - 1, 2, 1, 2, links, fails, stops, starts, frees, renews, parts];
        let operation = match random.by_weight(&weights) {
            0 => return self.send(program, random, at, context),
            1 => Operation::Receive {
                at,
                from: (!random.one_in(2)).then(|| random.below(processes) as u32),
                context,
                tag: (!random.one_in(2)).then(|| self.tag(random)),
                room: self.length(program.rails, random),
                gaps: Self::some(self.gaps, random),
                persistent: Self::some(self.persistent, random),
            },
            2 => {
                let from = random.one_in(2).then(|| random.below(processes) as u32);
                let tag = random.one_in(2).then(|| self.tag(random));
                Operation::Probe { at, from, context, tag, takes: random.one_in(2) }
            }
            3 => {
                let (room, gaps) = (self.length(program.rails, random), Self::some(self.gaps, random));
                Operation::ReceiveProbed { at, room, gaps }
            }
            4 => Operation::Cancel { at, which: random.below(8) },
            5 if random.one_in(4) => return self.pending(program, random, at),
            5 => Operation::Settle { at },
            6 => Operation::Refuse { at, rail: random.below(program.rails), refuses: random.one_in(2) },
            7 => {
                let rail = random.below(program.rails);
                Operation::Link { at, rail, up: random.one_in(2), noticed: random.one_in(2) }
            }
            8 => {
                let fault = random.one_of(&[Fault::Any, Fault::Reads, Fault::Reads, Fault::Post, Fault::Connect]);
                let queue_pair = random.below(64);
                if links > 0 && random.one_in(2) {
                    // A port loses its link, and its messages move to a port that fails to post or to connect.
                    self.fragments(program, random, at);
                    let fault = random.one_of(&[Fault::Post, Fault::Connect]);
                    program.operations.push(Operation::Fail { at, queue_pair, fault });
                    let rail = (queue_pair + 1 + random.below(program.rails - 1)) % program.rails;
                    Operation::Link { at, rail, up: false, noticed: true }
                } else {
                    Operation::Fail { at, queue_pair, fault }
                }
            }
            9 => Operation::Stop { at, steps: random.one_of(&[10, 100, 1000]) },
            10 => Operation::Start { at, which: random.below(8) },
            11 => Operation::Free { at, which: random.below(8) },
            12 => Operation::Renew { at, context },
            _ => Operation::Part { at, other: random.below(processes) as u32, fails: random.one_in(2) },
        };
        program.operations.push(operation);
    }

    /// Adds messages in fragments, of which more are in flight than a queue pair takes, with their receives.
    fn fragments(&self, program: &mut Program, random: &mut Random, from: u32) {
        let to = random.below(program.processes as usize) as u32;
        let (context, tag, length) = (self.contexts[0], self.tag(random), 6 * READ);
        for _ in 0..4 {
            program.operations.extend([
                Operation::Receive {
                    at: to,
                    from: Some(from),
                    context,
                    tag: Some(tag),
                    room: length,
                    gaps: false,
                    persistent: false,
                },
                Operation::Send { from, to, context, tag, length, mode: Mode::Standard, gaps: true, persistent: false },
            ]);
        }
    }

    /// Adds messages of which the last ones may pend, matched probes that may take all others out, and a receive.
    fn pending(&self, program: &mut Program, random: &mut Random, at: u32) {
        let from = random.below(program.processes as usize) as u32;
        let (context, tag, window) = (self.contexts[0], self.tag(random), program.window as usize);
        let (length, mode, gaps, persistent) = (8, Mode::Standard, false, false);
        let send = Operation::Send { from, to: at, context, tag, length, mode, gaps, persistent };
        let probe = Operation::Probe { at, from: Some(from), context, tag: Some(tag), takes: true };
        let (from, tag, room) = (Some(from), Some(tag), length);
        let receive = Operation::Receive { at, from, context, tag, room, gaps, persistent };
        program.operations.extend([send, Operation::Settle { at: send.at() }]);
        program.operations.extend(std::iter::repeat_n(send, window + 1));
        program.operations.push(Operation::Settle { at: send.at() });
        program.operations.extend(std::iter::repeat_n(probe, window + 1));
        program.operations.extend([receive, Operation::Settle { at }]);
    }

    fn send(&self, program: &mut Program, random: &mut Random, from: u32, context: u32) {
        let to = if self.flood { 0 } else { random.below(program.processes as usize) as u32 };
        let burst = if random.one_in(if self.flood { 2 } else { 12 }) { 1 + random.below(60) } else { 1 };
        let tag = self.tag(random);
        let is_of_short = self.flood && random.one_in(2);
        for _ in 0..burst {
            let length = if is_of_short { EAGER - MAX_SIZE } else { self.length(program.rails, random) };
            let mode = [Mode::Standard, Mode::Synchronous, Mode::Buffered, Mode::Ready][random.by_weight(&self.modes)];
            let (gaps, persistent) = (Self::some(self.gaps, random), Self::some(self.persistent, random));
            program.operations.push(Operation::Send { from, to, context, tag, length, mode, gaps, persistent });
            if random.below(5) < self.expected {
                let receive = Operation::Receive {
                    at: to,
                    from: (mode == Mode::Ready || !random.one_in(4)).then_some(from),
                    context,
                    tag: (tag < 0 || mode == Mode::Ready || !random.one_in(4)).then_some(tag),
                    room: if random.one_in(8) { self.length(program.rails, random) } else { length },
                    gaps: Self::some(self.gaps, random),
                    persistent: false,
                };
                let before = random.below(4).min(program.operations.len());
                program.operations.insert(program.operations.len() - before, receive);
            }
        }
    }
}
