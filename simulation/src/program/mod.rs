// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random programs: the operations of some processes, the limits of these, and the seed of the schedule.
//!
//! [`Program::of_seed`] makes one from a seed (`generator`); its `Display` is a test that can be pasted. Called by
//! `main` and the tests of the crate. Grade: test. Threads: plain data. Tests: those of the crate.

mod generator;

use std::fmt;

use ibex::messenger::request;
use ibex::transport::adapter::simulated::Sizes;

use crate::process::Settings;

/// When a send is done, in MPI's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the terms are MPI's")]
pub enum Mode {
    Standard,
    Synchronous,
    /// Done when the data is copied to the attached buffer. If the buffer has no room, the call fails.
    Buffered,
    /// A standard one, unless its receive is posted for certain.
    Ready,
}

impl Mode {
    /// Returns the mode of the messenger, which does not know the others.
    pub(crate) fn of_messenger(self) -> request::Mode {
        if self == Mode::Synchronous { request::Mode::Synchronous } else { request::Mode::Standard }
    }
}

/// How a connection fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A queue pair with a request fails.
    Any,
    /// A queue pair that has nothing but reads fails, maybe after some of them.
    Reads,
    /// A port refuses a request for good.
    Post,
    /// A port gives no queue pair to the next connection.
    Connect,
}

/// An operation of a process (`at`, or `from` for a send). Nothing in a program waits for an operation to end. If there
/// is nothing to which it applies, it does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the terms are MPI's")]
pub enum Operation {
    /// Starts a send; `persistent`: makes one, which [`Operation::Start`] starts.
    Send { from: u32, to: u32, context: u32, tag: i32, length: usize, mode: Mode, gaps: bool, persistent: bool },
    /// Posts a receive, or makes a persistent one; `None`: any source, any tag.
    Receive { at: u32, from: Option<u32>, context: u32, tag: Option<i32>, room: usize, gaps: bool, persistent: bool },
    /// Starts one of the persistent requests that are not active.
    Start { at: u32, which: usize },
    /// Frees one of the persistent requests, active or not.
    Free { at: u32, which: usize },
    /// Looks for a message; `takes`: a matched probe, which takes it out.
    Probe { at: u32, from: Option<u32>, context: u32, tag: Option<i32>, takes: bool },
    /// Receives the oldest message that a probe of this process took out.
    ReceiveProbed { at: u32, room: usize, gaps: bool },
    /// Cancels one of the receives of this process.
    Cancel { at: u32, which: usize },
    /// All processes free a communicator, with its requests and messages, and make another in its place.
    Renew { at: u32, context: u32 },
    /// All processes poll until no completion is left. Then every receive whose message was sent has ended.
    Settle { at: u32 },
    /// Two processes part, as those without a common communicator do, and meet again before the next message between
    /// them. `fails`: meanwhile their connection does, for the one of them that asks first whether the other lives.
    Part { at: u32, other: u32, fails: bool },
    /// A port of this process refuses to register memory, or accepts it again.
    Refuse { at: u32, rail: usize, refuses: bool },
    /// The link of a port of this process goes down or up. `noticed`: the process polls until it has noticed.
    Link { at: u32, rail: usize, up: bool, noticed: bool },
    /// A connection fails, once in a program: of the queue pairs from this one on, or of this process.
    Fail { at: u32, queue_pair: usize, fault: Fault },
    /// This process makes no progress during so many steps of the schedule.
    Stop { at: u32, steps: usize },
    /// This process dies.
    Die { at: u32 },
}

impl Operation {
    /// Returns the process whose operation it is.
    pub fn at(&self) -> u32 {
        *{ *self }.at_mut()
    }

    fn at_mut(&mut self) -> &mut u32 {
        match self {
            Operation::Send { from: at, .. }
            | Operation::Receive { at, .. }
            | Operation::Start { at, .. }
            | Operation::Free { at, .. }
            | Operation::Probe { at, .. }
            | Operation::ReceiveProbed { at, .. }
            | Operation::Cancel { at, .. }
            | Operation::Renew { at, .. }
            | Operation::Settle { at }
            | Operation::Part { at, .. }
            | Operation::Refuse { at, .. }
            | Operation::Link { at, .. }
            | Operation::Fail { at, .. }
            | Operation::Stop { at, .. }
            | Operation::Die { at } => at,
        }
    }

    /// Returns the operation in a program without process `gone`, where later processes have lower numbers; `None` if
    /// it needs that process.
    pub(crate) fn without(mut self, gone: u32) -> Option<Self> {
        let renumber = |one: &mut u32| {
            let is_there = *one != gone;
            *one -= u32::from(*one > gone);
            is_there
        };
        let has_other = match &mut self {
            Operation::Send { to: other, .. }
            | Operation::Part { other, .. }
            | Operation::Receive { from: Some(other), .. }
            | Operation::Probe { from: Some(other), .. } => renumber(other),
            _ => true,
        };
        (renumber(self.at_mut()) && has_other).then_some(self)
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
    /// Most send buffers of each size, of a port.
    pub buffers: u32,
    /// Number of bounce buffers of a port.
    pub bounces: u32,
    /// Size of the buffer that each process attaches for buffered sends, bytes.
    pub attached: usize,
    /// Whether the numbers of requests wrap soon.
    pub wraps: bool,
    /// Whether a process that has lost a peer goes on without it. Each process then has one port.
    pub outlives: bool,
    /// Seed of the schedule: who goes on next, and what the network does.
    pub schedule: u64,
    /// The operations. Those of one process keep their order.
    pub operations: Vec<Operation>,
}

/// Longest message inside a work request, longest eager one, and size of a receive slot, with headers, bytes.
pub(crate) const INLINE: usize = 64;
pub(crate) const EAGER: usize = 256;
pub(crate) const SLOT: usize = 320;

/// Longest RDMA read with one port, bytes.
pub(crate) const READ: usize = 512;

/// Longest RDMA read with several ports, which share messages of at least 64 KiB.
const LONG_READ: usize = 16 << 10;

/// Requests of a queue pair.
const DEPTH: u32 = 8;

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
            buffers: 4,
            bounces: 64,
            attached: 1 << 20,
            wraps: false,
            outlives: false,
            schedule: 0,
            operations: Vec::new(),
        }
    }
}

const fn is_death(operation: &Operation) -> bool {
    matches!(operation, Operation::Die { .. })
}

impl Program {
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            sizes: Sizes {
                inline: INLINE as u32,
                bounce: EAGER as u32,
                receive: SLOT as u32,
                slots: self.slots,
                bounces: self.bounces,
                depth: DEPTH,
            },
            eager: EAGER,
            read: if self.rails > 1 { LONG_READ } else { READ } as u32,
            unexpected_memory: self.unexpected_memory,
            window: self.window,
            buffers: self.buffers,
            rails: self.rails,
            per_host: self.per_host,
            attached: self.attached,
            wraps: self.wraps,
            outlives: self.outlives,
            // A process that only waits for one that has died learns of it by a probe.
            probe_interval: if self.outlives || self.operations.iter().any(is_death) { 20 } else { 0 },
        }
    }
}

/// A test that can be pasted.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Program { processes, rails, per_host, slots, unexpected_memory, window, .. } = self;
        let Program {
            hello_faults,
            post_faults,
            buffers,
            bounces,
            attached,
            wraps,
            outlives,
            schedule,
            operations,
            ..
        } = self;
        writeln!(f, "    check(&Program {{")?;
        writeln!(f, "        processes: {processes},")?;
        writeln!(f, "        rails: {rails},")?;
        writeln!(f, "        per_host: {per_host},")?;
        writeln!(f, "        slots: {slots},")?;
        writeln!(f, "        unexpected_memory: {unexpected_memory},")?;
        writeln!(f, "        window: {window},")?;
        writeln!(f, "        hello_faults: {hello_faults},")?;
        writeln!(f, "        post_faults: {post_faults},")?;
        writeln!(f, "        buffers: {buffers},")?;
        writeln!(f, "        bounces: {bounces},")?;
        writeln!(f, "        attached: {attached},")?;
        writeln!(f, "        wraps: {wraps},")?;
        writeln!(f, "        outlives: {outlives},")?;
        writeln!(f, "        schedule: 0x{schedule:x},")?;
        writeln!(f, "        operations: vec![")?;
        for operation in operations {
            writeln!(f, "            Operation::{operation:?},")?;
        }
        writeln!(f, "        ],")?;
        write!(f, "    }});")
    }
}
