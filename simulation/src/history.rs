// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happened in a simulation, in order: a hash of all of it, and the last steps for a failure. Equal hashes mean
//! equal histories. Grade: test. Threads: plain data. Tests: those of the crate.

use std::collections::VecDeque;

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// A process began the operation with this index in its program.
    Began { at: u32, operation: u32 },
    /// A process polled, with this number of completions.
    Polled { at: u32, count: u32 },
    /// The network carried so many requests of a queue pair.
    Carried { queue_pair: u32, count: u32 },
    /// So many requests of a queue pair completed.
    Acknowledged { queue_pair: u32, count: u32 },
    /// A message was sent (its index), and its buffer is free.
    Sent { at: u32, message: u32 },
    /// A receive or probe (its index) has got a message of this length.
    Received { at: u32, wish: u32, from: u32, length: u32 },
    /// A receive was cancelled.
    Cancelled { at: u32, wish: u32 },
    /// The network lost, or repeated, a hello to a port.
    Hello { port: u32, is_lost: bool },
    /// The adapter of a port will have no room for the next request.
    Full { port: u32 },
    /// The attached buffer of a process has no room for a message.
    NoBuffer { at: u32 },
    /// A context of the program has a new communicator with this number.
    Communicator { context: u32, number: u32 },
    /// A request ended, because its peer is lost: its number, as the program gave it.
    Failed { at: u32, number: u32 },
    /// A process has lost a peer.
    Lost { at: u32 },
    /// Nothing moves any more, after so many rounds.
    Settled { rounds: u32 },
}

impl Step {
    const fn words(self) -> [u32; 5] {
        match self {
            Step::Began { at, operation } => [1, at, operation, 0, 0],
            Step::Polled { at, count } => [2, at, count, 0, 0],
            Step::Carried { queue_pair, count } => [3, queue_pair, count, 0, 0],
            Step::Acknowledged { queue_pair, count } => [4, queue_pair, count, 0, 0],
            Step::Sent { at, message } => [5, at, message, 0, 0],
            Step::Received { at, wish, from, length } => [6, at, wish, from, length],
            Step::Cancelled { at, wish } => [7, at, wish, 0, 0],
            Step::Hello { port, is_lost } => [9, port, is_lost as u32, 0, 0],
            Step::Full { port } => [11, port, 0, 0, 0],
            Step::Lost { at } => [10, at, 0, 0, 0],
            Step::NoBuffer { at } => [12, at, 0, 0, 0],
            Step::Communicator { context, number } => [13, context, number, 0, 0],
            Step::Failed { at, number } => [14, at, number, 0, 0],
            Step::Settled { rounds } => [8, rounds, 0, 0, 0],
        }
    }
}

/// Number of last steps that are kept.
const LAST: usize = 60;

#[derive(Debug)]
pub(crate) struct History {
    hash: u64,
    pub(crate) count: u64,
    last: VecDeque<Step>,
}

impl Default for History {
    fn default() -> Self {
        History { hash: 0xcbf2_9ce4_8422_2325, count: 0, last: VecDeque::with_capacity(LAST) }
    }
}

impl History {
    pub(crate) fn note(&mut self, step: Step) {
        self.count += 1;
        for word in step.words() {
            self.hash = (self.hash ^ u64::from(word)).wrapping_mul(0x0100_0000_01b3);
        }
        if self.last.len() == LAST {
            self.last.pop_front();
        }
        self.last.push_back(step);
    }

    /// Returns the hash of all steps.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the last steps.
    pub(crate) fn last(&self) -> impl Iterator<Item = Step> {
        self.last.iter().copied()
    }
}
