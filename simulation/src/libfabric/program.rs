// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of libfabric: the operations of some endpoints, the limits of these, and the seed of the schedule. A
//! program's `Display` is a test that can be pasted. Grade: test. Threads: plain data. Tests: those of the crate.

use std::fmt;

use ibex::libfabric::Kind;

use super::endpoint::Opened;
use crate::process::Settings;
use crate::program;

/// How a message is sent, in libfabric's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// With the endpoint's default flags.
    Default,
    /// `fi_inject`: it reports nothing.
    Injected,
    /// With these flags: those that say when it is complete, `FI_INJECT`, `FI_COMPLETION`.
    Flags(u64),
}

/// What happens to the message that a search finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the terms are libfabric's")]
pub enum Found {
    Stays,
    Claimed,
    Discarded,
}

/// An operation of a process (`at`, or `from` for a send). If there is nothing to which it applies, it does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the terms are libfabric's")]
pub enum Operation {
    /// Starts a send; `pieces`: of its memory.
    Send { from: u32, to: u32, kind: Kind, tag: u64, data: Option<u64>, length: usize, pieces: usize, how: How },
    /// Posts a receive; `from`: `None` is any source.
    Receive { at: u32, from: Option<u32>, kind: Kind, tag: u64, ignore: u64, room: usize, pieces: usize },
    /// Posts a buffer for several messages, until less than `least` bytes are left.
    Buffer { at: u32, from: Option<u32>, room: usize, least: usize },
    /// Looks for a message.
    Search { at: u32, from: Option<u32>, kind: Kind, tag: u64, ignore: u64, found: Found },
    /// Receives the oldest claimed message; `None`: discards it.
    Claim { at: u32, room: Option<usize> },
    /// Cancels one of the receives of this process.
    Cancel { at: u32, which: usize },
    /// All processes progress until nothing moves. Then every receive whose message was sent has ended.
    Settle { at: u32 },
    /// The port of this process refuses to register memory, or accepts it again.
    Refuse { at: u32, refuses: bool },
    /// A connection fails, once in a program: of the queue pairs from this one on; one that only reads, if `reads`.
    Fail { at: u32, queue_pair: usize, reads: bool },
    /// This process makes no progress during so many steps of the schedule.
    Stop { at: u32, steps: usize },
    /// This process dies.
    Die { at: u32 },
    /// This process closes its endpoint.
    Close { at: u32 },
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
            | Operation::Buffer { at, .. }
            | Operation::Search { at, .. }
            | Operation::Claim { at, .. }
            | Operation::Cancel { at, .. }
            | Operation::Settle { at }
            | Operation::Refuse { at, .. }
            | Operation::Fail { at, .. }
            | Operation::Stop { at, .. }
            | Operation::Die { at }
            | Operation::Close { at } => at,
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
            | Operation::Receive { from: Some(other), .. }
            | Operation::Buffer { from: Some(other), .. }
            | Operation::Search { from: Some(other), .. } => renumber(other),
            _ => true,
        };
        (renumber(self.at_mut()) && has_other).then_some(self)
    }
}

/// A program of some processes, each with one endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Limits of the processes, and the schedule, as of a program of MPI without operations.
    pub limits: program::Program,
    /// Whether counters are bound to the endpoints.
    pub counts: bool,
    /// Whether only operations with `FI_COMPLETION` are reported. Receives have it.
    pub is_selective: bool,
    /// Default flags of sends.
    pub flags: u64,
    /// The operations. Those of one process keep their order.
    pub operations: Vec<Operation>,
}

/// Two processes that do nothing.
impl Default for Program {
    fn default() -> Self {
        let limits = program::Program::default();
        Program { limits, counts: false, is_selective: false, flags: 0, operations: Vec::new() }
    }
}

impl Program {
    pub(super) fn settings(&self) -> Settings {
        let is_end = |one: &Operation| matches!(one, Operation::Die { .. } | Operation::Close { .. });
        let outlives = self.limits.outlives || self.operations.iter().any(is_end);
        program::Program { outlives, ..self.limits.clone() }.settings()
    }

    pub(super) fn opened(&self) -> Opened {
        Opened { counts: self.counts, is_selective: self.is_selective, flags: [self.flags, 0] }
    }
}

/// A test that can be pasted.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let program::Program { processes, slots, unexpected_memory, window, hello_faults, post_faults, .. } =
            &self.limits;
        let program::Program { buffers, bounces, wraps, outlives, schedule, .. } = &self.limits;
        writeln!(f, "    use crate::Program as Limits;")?;
        writeln!(f, "    use crate::libfabric::{{Found::*, How::*, Kind::*, Operation}};")?;
        writeln!(f, "    check(&Program {{")?;
        writeln!(f, "        limits: Limits {{")?;
        writeln!(f, "            processes: {processes},")?;
        writeln!(f, "            slots: {slots},")?;
        writeln!(f, "            unexpected_memory: {unexpected_memory},")?;
        writeln!(f, "            window: {window},")?;
        writeln!(f, "            hello_faults: {hello_faults},")?;
        writeln!(f, "            post_faults: {post_faults},")?;
        writeln!(f, "            buffers: {buffers},")?;
        writeln!(f, "            bounces: {bounces},")?;
        writeln!(f, "            wraps: {wraps},")?;
        writeln!(f, "            outlives: {outlives},")?;
        writeln!(f, "            schedule: 0x{schedule:x},")?;
        writeln!(f, "            ..Limits::default()")?;
        writeln!(f, "        }},")?;
        writeln!(f, "        counts: {},", self.counts)?;
        writeln!(f, "        is_selective: {},", self.is_selective)?;
        writeln!(f, "        flags: 0x{:x},", self.flags)?;
        writeln!(f, "        operations: vec![")?;
        for operation in &self.operations {
            writeln!(f, "            Operation::{operation:?},")?;
        }
        writeln!(f, "        ],")?;
        write!(f, "    }});")
    }
}
