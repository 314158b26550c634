// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the program of a seed: what it prefers, then its operations, one after another. Called by `main` and the tests
//! of the crate. Grade: test. Threads: plain data. Tests: those of the crate.

use ibex::libfabric::{Kind, fi};
use ibex::messenger::header::MAX_TAGGED_SIZE;

use super::{Found, How, Operation, Program};
use crate::program::{self, EAGER, INLINE, READ, SLOT};
use crate::random::Random;

/// Bytes of the header of a short message, and of remote CQ data.
const HEADER: usize = 12;
const DATA: usize = 8;

/// Lengths around each bound, bytes: none; inside the work request, with remote CQ data and without; eager; a fragment;
/// one read; more reads and fragments than may be in flight.
const LENGTHS: [usize; 18] = [
    0,
    1,
    8,
    INLINE - HEADER - DATA,
    INLINE - HEADER - DATA + 1,
    INLINE - HEADER,
    INLINE - HEADER + 1,
    EAGER - MAX_TAGGED_SIZE,
    EAGER - MAX_TAGGED_SIZE + 1,
    EAGER,
    SLOT,
    READ - 1,
    READ,
    READ + 1,
    2 * READ + 1,
    3 * READ,
    5 * READ,
    6 * READ + 7,
];

/// Tags that differ in their ends, and the bits that receives ignore.
const TAGS: [u64; 6] = [0, 1, 7, 1 << 32, 1 << 63, u64::MAX];
const IGNORED: [u64; 6] = [0, 0, 1, 1 << 63, (1 << 32) - 1, u64::MAX];

/// What the programs of a seed prefer.
struct Generator {
    /// Of the tags, so many are used.
    tags: usize,
    /// Whether tagged and untagged messages are sent.
    kinds: [usize; 2],
    /// Weights of buffers for several messages, and of searches.
    buffers: usize,
    searches: usize,
    /// Weights of the ways to send.
    how: [usize; 5],
    /// Of five sends, so many get a receive that names them.
    expected: usize,
    /// Whether most messages go to one process, in bursts.
    flood: bool,
    /// One message in so many is in pieces; 0: none.
    pieces: usize,
    /// Weights of connections that fail, and of processes that stop.
    faults: [usize; 2],
}

impl Program {
    /// Makes the program of a seed, with `processes` processes if that is given.
    pub fn of_seed(seed: u64, processes: Option<u32>) -> Self {
        Program::made(Random::new(seed, 3), processes, false)
    }

    /// Makes the program of a seed whose processes outlive others: some die, close their endpoints, or a connection
    /// fails.
    pub fn with_lost_peers(seed: u64, processes: Option<u32>) -> Self {
        Program::made(Random::new(seed, 4), processes, true)
    }

    fn made(mut random: Random, processes: Option<u32>, outlives: bool) -> Self {
        let most = [1, 3, 7][random.by_weight(&[10, 6, 3])];
        let some = 2 + random.below(most) as u32;
        let limits = program::Program {
            processes: processes.unwrap_or(some).max(if outlives { 2 } else { 1 }),
            slots: random.one_of(&[8, 16, 16, 32]),
            unexpected_memory: random.one_of(&[0, 0, 600, 3000, 1 << 20]),
            window: random.one_of(&[1, 2, 8]),
            hello_faults: random.one_of(&[0, 0, 0, 0, 3, 20]),
            post_faults: random.one_of(&[0, 0, 0, 10]),
            buffers: random.one_of(&[1, 4, 4]),
            bounces: random.one_of(&[1, 3, 64]),
            wraps: random.one_in(3),
            schedule: random.next(),
            outlives,
            ..program::Program::default()
        };
        let mut program = Program {
            limits,
            counts: random.one_in(2),
            is_selective: random.one_in(4),
            flags: random.one_of(&[0, 0, 0, 0, fi::FI_COMPLETION, fi::FI_DELIVERY_COMPLETE, fi::FI_MATCH_COMPLETE]),
            operations: Vec::new(),
        };
        let (flood, fails) = (random.one_in(8), outlives && random.one_in(2));
        let generator = Generator {
            tags: 1 + random.below(TAGS.len()),
            kinds: random.one_of(&[[1, 0], [0, 1], [1, 1], [3, 1]]),
            buffers: random.one_of(&[0, 3, 10]),
            searches: random.one_of(&[2, 4, 16]),
            how: [8, random.one_of(&[0, 2]), random.one_of(&[0, 2]), random.one_of(&[0, 2, 8]), random.one_of(&[0, 2])],
            expected: if flood { 0 } else { random.one_of(&[0, 2, 4]) },
            flood,
            pieces: random.one_of(&[0, 8, 2]),
            faults: [4 * usize::from(fails), usize::from(random.one_in(4))],
        };
        let count = if flood || random.one_in(8) { 200 + random.below(400) } else { 4 + random.below(100) };
        while program.operations.len() < count {
            generator.add(&mut program, &mut random);
        }
        if outlives {
            let most = program.limits.processes as usize;
            for _ in 0..random.below(most).max(usize::from(!fails)) {
                let at = random.below(most) as u32;
                let place = random.below(program.operations.len());
                let end = if random.one_in(2) { Operation::Die { at } } else { Operation::Close { at } };
                program.operations.insert(place, end);
            }
        }
        program
    }
}

impl Generator {
    fn some(one_in: usize, random: &mut Random) -> bool {
        one_in > 0 && random.one_in(one_in)
    }

    fn length(random: &mut Random) -> usize {
        if random.one_in(12) { random.below(6 * READ) } else { random.one_of(&LENGTHS) }
    }

    fn pieces(&self, random: &mut Random) -> usize {
        if Self::some(self.pieces, random) { 2 + random.below(2) } else { 1 }
    }

    /// Returns a kind, and a tag of it.
    fn tag(&self, random: &mut Random) -> (Kind, u64) {
        match random.by_weight(&self.kinds) {
            0 => (Kind::Tagged, TAGS[random.below(self.tags)]),
            _ => (Kind::Message, 0),
        }
    }

    /// Returns which tags of this kind a receive takes, one of which is `tag`.
    fn wanted((kind, tag): (Kind, u64), random: &mut Random) -> (u64, u64) {
        match kind {
            Kind::Tagged => {
                let ignore = random.one_of(&IGNORED);
                (if random.one_in(2) { tag } else { tag ^ ignore }, ignore)
            }
            Kind::Message => (0, 0),
        }
    }

    fn how(&self, length: usize, random: &mut Random) -> How {
        let completion = if random.one_in(2) { fi::FI_COMPLETION } else { 0 };
        match random.by_weight(&self.how) {
            1 if length <= SLOT => How::Injected,
            2 if length <= SLOT => How::Flags(fi::FI_INJECT | completion),
            3 => How::Flags(fi::FI_DELIVERY_COMPLETE | completion),
            4 => How::Flags(fi::FI_MATCH_COMPLETE | completion),
            _ if random.one_in(4) => How::Flags(completion),
            _ => How::Default,
        }
    }

    /// Adds an operation, or some.
    fn add(&self, program: &mut Program, random: &mut Random) {
        let processes = program.limits.processes as usize;
        let at = random.below(processes) as u32;
        let from = (!random.one_in(2)).then(|| random.below(processes) as u32);
        let of @ (kind, _) = self.tag(random);
        let [fails, stops] = self.faults;
        let weights = [24, 10, self.buffers, self.searches, self.searches / 2, 2, 1, 2, fails, stops];
        let operation = match random.by_weight(&weights) {
            0 => return self.send(program, random, at, of),
            1 => {
                let (tag, ignore) = Self::wanted(of, random);
                Operation::Receive {
                    at,
                    from,
                    kind,
                    tag,
                    ignore,
                    room: Self::length(random),
                    pieces: self.pieces(random),
                }
            }
            2 => {
                let room = random.one_of(&[1, 64, 300, 1000, 10 * READ]);
                Operation::Buffer { at, from, room, least: random.one_of(&[0, 1, 8, 64]).min(room) }
            }
            3 => {
                let (tag, ignore) = Self::wanted(of, random);
                let found = random.one_of(&[Found::Stays, Found::Claimed, Found::Claimed, Found::Discarded]);
                Operation::Search { at, from, kind, tag, ignore, found }
            }
            4 => Operation::Claim { at, room: (!random.one_in(4)).then(|| Self::length(random)) },
            5 => Operation::Cancel { at, which: random.below(8) },
            6 => Operation::Settle { at },
            7 => Operation::Refuse { at, refuses: random.one_in(2) },
            8 => Operation::Fail { at, queue_pair: random.below(64), reads: random.one_in(2) },
            _ => Operation::Stop { at, steps: random.one_of(&[10, 100, 1000]) },
        };
        program.operations.push(operation);
    }

    fn send(&self, program: &mut Program, random: &mut Random, from: u32, of: (Kind, u64)) {
        let to = if self.flood { 0 } else { random.below(program.limits.processes as usize) as u32 };
        let burst = if random.one_in(if self.flood { 2 } else { 12 }) { 1 + random.below(60) } else { 1 };
        let (kind, tag) = of;
        for _ in 0..burst {
            let length = Self::length(random);
            let data = random.one_in(3).then(|| random.next());
            let (pieces, how) = (self.pieces(random), self.how(length, random));
            program.operations.push(Operation::Send { from, to, kind, tag, data, length, pieces, how });
            if random.below(5) < self.expected {
                let (tag, ignore) = Self::wanted(of, random);
                let receive = Operation::Receive {
                    at: to,
                    from: (!random.one_in(4)).then_some(from),
                    kind,
                    tag,
                    ignore,
                    room: if random.one_in(8) { Self::length(random) } else { length },
                    pieces: self.pieces(random),
                };
                let before = random.below(4).min(program.operations.len());
                program.operations.insert(program.operations.len() - before, receive);
            }
        }
    }
}
