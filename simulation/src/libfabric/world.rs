// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a program of libfabric: begins its operations, in memory that goes as soon as the program has it back, so that
//! a later use ends the simulation. `completions` notes what has ended, `check` judges the whole. Grade: test. Threads:
//! one per world; worlds share nothing. Tests: those of the crate.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

use ibex::libfabric::{DELIVERED, Kind, Message, Wanted, fi};
use ibex::transport::adapter::simulated::Fabric;

use super::endpoint::Endpoint;
use super::memory::{Data, Piece};
use super::{Found, How, Operation, Program};
use crate::history::Step;
use crate::memory::Memory;
use crate::schedule::{Limits, Schedule, Scheduled, TICK};
use crate::world::content;

/// Initial value of each byte of a receive's memory, and of what is between the pieces.
const EMPTY: u8 = 0xee;

/// Number of bytes behind each piece that no message may change.
const GUARD: usize = 8;

/// Time after which an endpoint that has said that it leaves goes in any case.
const LEAVING: Duration = Duration::from_secs(1);

/// A message.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) kind: Kind,
    pub(super) tag: u64,
    pub(super) data: Option<u64>,
    pub(super) length: usize,
    /// Flags that say when it is complete.
    pub(super) completes: u64,
    /// Whether its success is reported.
    pub(super) is_reported: bool,
    pub(super) is_injected: bool,
    /// Numbers of the steps that began it, and after which it was complete.
    pub(super) begun: usize,
    pub(super) done: Option<usize>,
    pub(super) has_failed: bool,
    /// The memory of its data, until the program has it back.
    pub(super) memory: Option<u64>,
}

impl Sent {
    /// Whether it is matched when it is complete.
    pub(super) const fn is_matched_when_done(&self) -> bool {
        self.completes & fi::FI_MATCH_COMPLETE != 0
    }
}

/// What a receive has got, or a search has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Got {
    pub(super) from: usize,
    pub(super) tag: u64,
    pub(super) data: Option<u64>,
    /// Length of the message.
    pub(super) length: usize,
    /// Place in the buffer.
    pub(super) offset: usize,
}

/// What a wish is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Receive,
    /// A buffer for several messages, with the least room for a further one.
    Buffer(usize),
    Search(Found),
}

/// How a wish has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Waits,
    /// The program has the memory back, or the result of the search.
    Done,
    Cancelled,
    Failed,
}

/// Bytes that a failure does not show.
pub(super) struct Bytes(pub(super) Box<[u8]>);

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// A receive, a buffer or a search.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) at: usize,
    pub(super) kind: Kind,
    pub(super) from: Option<usize>,
    pub(super) tag: u64,
    pub(super) ignore: u64,
    pub(super) what: What,
    pub(super) made: usize,
    pub(super) got: Vec<Got>,
    pub(super) end: End,
    /// Whether its receive, or one of a buffer's, has failed because a peer is lost.
    pub(super) has_failed: bool,
    /// The receive of a claimed message.
    pub(super) claim: Option<End>,
    /// Successes and failures that a counter counts.
    pub(super) counted: [usize; 2],
    pub(super) room: usize,
    pub(super) pieces: usize,
    pub(super) memory: Option<u64>,
    /// The bytes of the memory that the program has back.
    pub(super) bytes: Option<Bytes>,
}

/// What becomes of an endpoint that its program closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closing {
    /// It waits until its messages have arrived, since this time.
    Drains(Duration),
    /// It has said at this time that it leaves.
    Leaves(Duration),
}

pub(super) struct World {
    pub(super) program: Program,
    pub(super) schedule: Schedule,
    pub(super) memory: Memory,
    /// `None`: the process has died, or has closed its endpoint.
    pub(super) endpoints: Vec<Option<Endpoint>>,
    pub(super) closing: Vec<Option<Closing>>,
    pub(super) sent: Vec<Sent>,
    pub(super) wishes: Vec<Wish>,
    /// Searches whose claimed message was not received yet.
    claimed: Vec<VecDeque<usize>>,
    /// Processes that have died, and those that have closed their endpoints.
    pub(super) dead: BTreeSet<usize>,
    pub(super) closed: BTreeSet<usize>,
    /// Processes that have closed their endpoints before all messages had arrived, because it took too long.
    pub(super) gave_up: BTreeSet<usize>,
    /// Pairs of processes, each in both orders, that have lost each other.
    pub(super) lost: BTreeSet<(usize, usize)>,
    /// Number of the step in which each process has polled last.
    pub(super) polled: Vec<usize>,
    /// Errors of operations that have no context, at each process.
    pub(super) anonymous: Vec<usize>,
    pub(super) now: usize,
}

/// Returns the bytes of memory for `room` bytes in so many pieces, which begin with `data`; and each piece's place and
/// length.
pub(super) fn laid_out(data: &[u8], room: usize, pieces: usize) -> (Vec<u8>, Vec<(usize, usize)>) {
    let (mut bytes, mut places, mut done) = (Vec::new(), Vec::new(), 0);
    for piece in 0..pieces {
        // The first ones are short, and all but the last maybe empty.
        let length = if piece + 1 == pieces { room - done } else { (room - done) / 3 };
        places.push((bytes.len(), length));
        let filled = data.get(done..).unwrap_or_default();
        bytes.extend((0..length).map(|at| filled.get(at).copied().unwrap_or(EMPTY)));
        bytes.extend([EMPTY; GUARD]);
        done += length;
    }
    (bytes, places)
}

impl World {
    pub(super) fn new(program: &Program) -> Self {
        let (memory, settings, count) = (Memory::default(), program.settings(), program.limits.processes);
        let fabric = Fabric::new(Box::new(memory.clone()), TICK);
        let open = |rank| Endpoint::open((&fabric, &memory), (rank, count), &settings, program.opened());
        let endpoints = (0..count).map(|rank| Some(open(rank))).collect();
        let count = count as usize;
        let limits = Limits {
            processes: count,
            rails: 1,
            hello_faults: program.limits.hello_faults,
            post_faults: program.limits.post_faults,
            seed: program.limits.schedule,
        };
        World {
            program: program.clone(),
            schedule: Schedule::new(limits, fabric, program.operations.iter().map(Operation::at)),
            memory,
            endpoints,
            closing: vec![None; count],
            sent: Vec::new(),
            wishes: Vec::new(),
            claimed: vec![VecDeque::new(); count],
            dead: BTreeSet::new(),
            closed: BTreeSet::new(),
            gave_up: BTreeSet::new(),
            lost: BTreeSet::new(),
            polled: vec![0; count],
            anonymous: vec![0; count],
            now: 0,
        }
    }

    fn begin(&mut self, index: usize) {
        let operation = self.program.operations[index];
        let at = operation.at();
        self.now += 1;
        self.schedule.history.note(Step::Began { at, operation: index as u32 });
        match operation {
            Operation::Send { .. } => self.send(operation),
            Operation::Receive { from, kind, tag, ignore, room, pieces, .. } => {
                self.receive(at as usize, from.map(|from| from as usize), (kind, tag, ignore), (room, pieces));
            }
            Operation::Buffer { from, room, least, .. } => self.post_buffer(at as usize, from, room, least),
            Operation::Search { from, kind, tag, ignore, found, .. } => {
                self.search(at as usize, from, (kind, tag, ignore), found);
            }
            Operation::Claim { room, .. } => _ = self.claim(at as usize, room),
            Operation::Cancel { which, .. } => self.cancel_one(at as usize, which),
            Operation::Settle { .. } => {
                self.settle();
                if self.is_whole() && !self.schedule.has_failed {
                    self.model().matches();
                }
            }
            Operation::Refuse { refuses, .. } => {
                self.memory.refuse(at as usize, refuses);
                self.schedule.fabric.refuse_slots(at as usize, refuses);
            }
            Operation::Fail { .. } if self.schedule.has_failed || self.schedule.failing.is_some() => {}
            Operation::Fail { queue_pair, reads, .. } => self.schedule.failing = Some((queue_pair, reads)),
            Operation::Stop { steps, .. } => self.schedule.stopped[at as usize] = steps,
            Operation::Die { .. } => {
                self.dead.insert(at as usize);
                self.ends(at as usize);
                self.endpoints[at as usize] = None;
            }
            Operation::Close { .. } => {
                self.ends(at as usize);
                if let Some(endpoint) = &mut self.endpoints[at as usize] {
                    endpoint.stop_reporting();
                    self.closing[at as usize] = Some(Closing::Drains(self.schedule.fabric.now()));
                    self.closed.insert(at as usize);
                }
            }
        }
        if let Some(endpoint) = &mut self.endpoints[at as usize] {
            endpoint.wind();
        }
        self.look(at as usize);
    }

    /// Ends the program of a process.
    fn ends(&mut self, at: usize) {
        self.look(at);
        self.schedule.left[at].clear();
        self.claimed[at].clear();
    }

    fn endpoint(&mut self, at: usize) -> &mut Endpoint {
        self.endpoints[at].as_mut().expect("a process that has ended does nothing")
    }

    /// Returns memory of the program, and the data of an operation with it.
    fn data(&self, (bytes, places): (Vec<u8>, Vec<(usize, usize)>)) -> (u64, Data) {
        let (start, memory) = (self.memory.add(bytes), &self.memory);
        let piece = |(place, length)| Piece { memory: memory.clone(), start: start + place as u64, length };
        (start, Data::of(places.into_iter().map(piece).collect()))
    }

    fn send(&mut self, operation: Operation) {
        let Operation::Send { from, to, kind, tag, data, length, pieces, how } = operation else { return };
        let message = self.sent.len();
        let (bytes, places) = laid_out(&content(message, length), length, pieces);
        let (memory, bytes) = self.data((bytes, places));
        // A call has remote CQ data if it has this flag.
        let remote = if data.is_some() { fi::FI_REMOTE_CQ_DATA } else { 0 };
        let flags = match how {
            How::Default | How::Injected => self.program.flags,
            How::Flags(flags) => flags,
        };
        let is_injected = how == How::Injected;
        let is_reported = !is_injected && (!self.program.is_selective || flags & fi::FI_COMPLETION != 0);
        let completes = if is_injected { 0 } else { flags & DELIVERED };
        let is_free = is_injected || flags & fi::FI_INJECT != 0;
        self.sent.push(Sent {
            from: from as usize,
            to: to as usize,
            kind,
            tag,
            data,
            length,
            completes,
            is_reported,
            is_injected,
            begun: self.now,
            done: None,
            has_failed: false,
            memory: (!is_free).then_some(memory),
        });
        // A send that waits for a connection makes progress.
        self.polled[from as usize] = self.now;
        let default = self.program.flags;
        let endpoint = self.endpoint(from as usize);
        let of = Message { to: endpoint.vector.address_of(to), tag, data };
        match how {
            How::Injected => endpoint.inject(kind, of, bytes),
            How::Default => endpoint.send((kind, 2 * message + 2), of, bytes, None, default),
            How::Flags(flags) => endpoint.send((kind, 2 * message + 2), of, bytes, Some(flags | remote), default),
        }
        if is_free {
            self.free(memory);
        }
        self.look(from as usize);
    }

    /// Takes memory that the program has back.
    pub(super) fn free(&self, memory: u64) -> Box<[u8]> {
        self.memory.take(memory)
    }

    /// Adds a wish. Returns its index.
    fn wish(&mut self, at: usize, from: Option<usize>, of: (Kind, u64, u64), what: What) -> usize {
        let ((kind, tag, ignore), made) = (of, self.now);
        let (got, end) = (Vec::new(), End::Waits);
        self.wishes.push(Wish {
            at,
            kind,
            from,
            tag,
            ignore,
            what,
            made,
            got,
            end,
            has_failed: false,
            claim: None,
            counted: [0, 0],
            room: 0,
            pieces: 1,
            memory: None,
            bytes: None,
        });
        self.wishes.len() - 1
    }

    /// Gives a wish memory, and returns its data.
    fn lend(&mut self, wish: usize, room: usize, pieces: usize) -> Data {
        let (memory, data) = self.data(laid_out(&[], room, pieces));
        let known = &mut self.wishes[wish];
        (known.memory, known.room, known.pieces) = (Some(memory), room, pieces);
        data
    }

    /// Posts, or searches, for a wish.
    fn ask(&mut self, wish: usize, data: Data, flags: Option<u64>, least: usize) {
        let Wish { at, kind, from, tag, ignore, .. } = self.wishes[wish];
        // All receives are reported.
        let completion = if self.program.is_selective { fi::FI_COMPLETION } else { 0 };
        let flags = flags.map_or((completion > 0).then_some(completion), |flags| Some(flags | completion));
        let endpoint = self.endpoint(at);
        let from = from.map_or(fi::FI_ADDR_UNSPEC, |from| endpoint.vector.address_of(from as u32));
        endpoint.receive((kind, 2 * wish + 3), Wanted { from, tag, ignore }, data, flags, least);
    }

    pub(super) fn receive(&mut self, at: usize, from: Option<usize>, of: (Kind, u64, u64), memory: (usize, usize)) {
        let wish = self.wish(at, from, of, What::Receive);
        let data = self.lend(wish, memory.0, memory.1);
        self.ask(wish, data, None, 0);
    }

    fn post_buffer(&mut self, at: usize, from: Option<u32>, room: usize, least: usize) {
        let from = from.map(|from| from as usize);
        let wish = self.wish(at, from, (Kind::Message, 0, 0), What::Buffer(least));
        let data = self.lend(wish, room, 1);
        self.ask(wish, data, Some(fi::FI_MULTI_RECV), least);
    }

    fn search(&mut self, at: usize, from: Option<u32>, of: (Kind, u64, u64), found: Found) {
        let from = from.map(|from| from as usize);
        let wish = self.wish(at, from, of, What::Search(found));
        let more = match found {
            Found::Stays => 0,
            Found::Claimed => fi::FI_CLAIM,
            Found::Discarded => fi::FI_DISCARD,
        };
        // A search makes progress.
        self.polled[at] = self.now;
        self.ask(wish, Data::of(Vec::new()), Some(fi::FI_PEEK | more), 0);
        self.look(at);
        if found == Found::Claimed && self.wishes[wish].end == End::Done && !self.wishes[wish].got.is_empty() {
            self.claimed[at].push_back(wish);
        }
    }

    /// Receives the oldest claimed message, or discards it. Returns false if there is none.
    pub(super) fn claim(&mut self, at: usize, room: Option<usize>) -> bool {
        let Some(wish) = self.claimed[at].pop_front() else { return false };
        self.wishes[wish].claim = Some(End::Waits);
        let (data, flags) = match room {
            Some(room) => (self.lend(wish, room, 1), fi::FI_CLAIM),
            None => (Data::of(Vec::new()), fi::FI_CLAIM | fi::FI_DISCARD),
        };
        self.ask(wish, data, Some(flags), 0);
        self.look(at);
        true
    }

    fn cancel_one(&mut self, at: usize, which: usize) {
        let is_open = |wish: &Wish| wish.at == at && wish.end == End::Waits && !matches!(wish.what, What::Search(_));
        let open: Vec<usize> = (0..self.wishes.len()).filter(|wish| is_open(&self.wishes[*wish])).collect();
        if let Some(wish) = open.get(which % open.len().max(1)) {
            self.cancel(*wish);
        }
    }

    /// Cancels a receive. Returns whether it had not matched, and so ends.
    pub(super) fn cancel(&mut self, wish: usize) -> bool {
        let at = self.wishes[wish].at;
        let is_cancelled = self.endpoint(at).cancel(2 * wish + 3);
        self.look(at);
        assert!(
            !is_cancelled || self.wishes[wish].end == End::Cancelled,
            "the cancelled receive {wish} does not end: {:?}",
            self.wishes[wish]
        );
        is_cancelled
    }

    /// Goes on with closing an endpoint.
    fn close_on(&mut self, at: usize) {
        let (Some(closing), Some(endpoint)) = (self.closing[at], &mut self.endpoints[at]) else { return };
        let (owes, now) = (endpoint.owes_messages(), self.schedule.fabric.now());
        match closing {
            Closing::Drains(since) if owes && now < since + endpoint.patience() => {}
            Closing::Drains(_) => {
                if owes {
                    self.gave_up.insert(at);
                }
                endpoint.say_that_it_leaves();
                self.closing[at] = Some(Closing::Leaves(now));
            }
            Closing::Leaves(since) if owes && now < since + LEAVING => {}
            Closing::Leaves(_) => {
                self.closing[at] = None;
                self.endpoints[at] = None;
            }
        }
    }

    /// Checks that no endpoint waits for others to close.
    pub(super) fn check_closed(&self) {
        let waiting = self.closing.iter().position(Option::is_some);
        assert!(waiting.is_none(), "the endpoint of process {waiting:?} does not close");
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
        let all = self.endpoints.iter().flatten().map(Endpoint::describe);
        all.filter(|lines| !lines.is_empty()).collect()
    }

    fn is_whole(&self) -> bool {
        self.dead.is_empty() && self.closed.is_empty() && self.lost.is_empty()
    }

    fn poll(&mut self, at: usize) -> usize {
        self.now += 1;
        let Some(endpoint) = &mut self.endpoints[at] else { return 0 };
        let count = endpoint.progress();
        endpoint.wind();
        self.polled[at] = self.now;
        if count > 0 {
            self.schedule.history.note(Step::Polled { at: at as u32, count: count as u32 });
        }
        self.look(at);
        self.close_on(at);
        count
    }
}
