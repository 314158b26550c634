// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes a failing program small: removes operations and processes while it still fails, and makes the others simple.
//!
//! A smaller program has another schedule, so each is tried with several. Grade: test. Threads: one. Tests: those of
//! the crate.

use crate::program::{Mode, Operation, Program};

/// Number of schedules with which a smaller program is tried.
const SCHEDULES: u64 = 24;

/// Most runs of programs.
const RUNS: usize = 8_000;

/// A program that can be made smaller.
pub trait Shrinks: Clone + PartialEq {
    /// An operation of a process.
    type Operation: Copy + PartialEq;

    /// Its operations.
    fn operations(&mut self) -> &mut Vec<Self::Operation>;

    /// The seed of its schedule.
    fn schedule(&mut self) -> &mut u64;

    /// Returns the program without a process; `None` if it has no other.
    fn without_process(&self, gone: u32) -> Option<Self>;

    /// Returns simpler programs with the same operations, or fewer.
    fn simpler(&self) -> Vec<Self>;

    /// Returns simpler forms of an operation.
    fn simpler_operations(operation: Self::Operation) -> Vec<Self::Operation>;
}

/// Returns the different results of changes.
pub(crate) fn changed<T: Clone + PartialEq>(of: &T, changes: &[fn(&mut T)]) -> Vec<T> {
    let with = |change: &fn(&mut T)| {
        let mut other = of.clone();
        change(&mut other);
        other
    };
    changes.iter().map(with).filter(|other| other != of).collect()
}

/// Returns a small program that still fails. `fails`: whether a program fails.
pub fn shrink<P: Shrinks>(program: &P, fails: impl Fn(&P) -> bool) -> P {
    let mut search = Search { best: program.clone(), fails, runs: 0 };
    loop {
        let before = search.best.clone();
        search.without_operations();
        search.without_processes();
        search.simplified();
        if search.best == before || search.runs >= RUNS {
            return search.best;
        }
    }
}

struct Search<P, F> {
    best: P,
    fails: F,
    runs: usize,
}

impl<P: Shrinks, F: Fn(&P) -> bool> Search<P, F> {
    /// Takes a program if it fails.
    fn tries(&mut self, mut program: P) -> bool {
        if program == self.best {
            return false;
        }
        let first = *program.schedule();
        for other in 0..SCHEDULES {
            if self.runs >= RUNS {
                return false;
            }
            self.runs += 1;
            *program.schedule() = first.wrapping_add(other);
            if (self.fails)(&program) {
                self.best = program;
                return true;
            }
        }
        false
    }

    fn without_operations(&mut self) {
        let mut size = self.best.operations().len().div_ceil(2);
        while size > 0 {
            let mut start = 0;
            while start < self.best.operations().len() {
                let mut smaller = self.best.clone();
                let end = (start + size).min(smaller.operations().len());
                smaller.operations().drain(start..end);
                if !self.tries(smaller) {
                    start += size;
                }
            }
            size /= 2;
        }
    }

    fn without_processes(&mut self) {
        let mut gone = 0;
        while let Some(smaller) = self.best.without_process(gone) {
            if !self.tries(smaller) {
                gone += 1;
            }
        }
    }

    fn simplified(&mut self) {
        for simpler in self.best.simpler() {
            self.tries(simpler);
        }
        for at in 0..self.best.operations().len() {
            let operation = self.best.operations()[at];
            for simpler in P::simpler_operations(operation) {
                let mut program = self.best.clone();
                program.operations()[at] = simpler;
                self.tries(program);
            }
        }
    }
}

impl Shrinks for Program {
    type Operation = Operation;

    fn operations(&mut self) -> &mut Vec<Operation> {
        &mut self.operations
    }

    fn schedule(&mut self) -> &mut u64 {
        &mut self.schedule
    }

    fn without_process(&self, gone: u32) -> Option<Self> {
        let operations = self.operations.iter().filter_map(|one| one.without(gone)).collect();
        let smaller = Program { processes: self.processes - 1, operations, ..self.clone() };
        (gone < self.processes && self.processes > 1).then_some(smaller)
    }

    fn simpler(&self) -> Vec<Self> {
        let changes: [fn(&mut Program); 10] = [
            |program| {
                program.rails = 1;
                let needs_more = |one: &Operation| match one {
                    Operation::Refuse { rail, .. } => *rail > 0,
                    Operation::Link { .. } | Operation::Fail { .. } => true,
                    _ => false,
                };
                program.operations.retain(|one| !needs_more(one));
            },
            |program| program.per_host = 1,
            |program| program.unexpected_memory = 1 << 20,
            |program| program.window = 8,
            |program| program.slots = 16,
            |program| program.hello_faults = 0,
            |program| program.post_faults = 0,
            |program| (program.buffers, program.bounces, program.attached) = (4, 64, 1 << 20),
            |program| program.wraps = false,
            |program| program.operations.iter_mut().for_each(|one| set_context(one, 0)),
        ];
        changed(self, &changes)
    }

    fn simpler_operations(operation: Operation) -> Vec<Operation> {
        simpler(operation)
    }
}

fn set_context(operation: &mut Operation, number: u32) {
    if let Operation::Send { context, .. }
    | Operation::Receive { context, .. }
    | Operation::Probe { context, .. }
    | Operation::Renew { context, .. } = operation
    {
        *context = number;
    }
}

/// Returns simpler forms of an operation.
fn simpler(operation: Operation) -> Vec<Operation> {
    let changes: [fn(&mut Operation); 9] = [
        |one| shorten(one, 8),
        |one| shorten(one, 100),
        |one| shorten(one, 256),
        |one| shorten(one, 600),
        |one| {
            if let Operation::Send { mode, .. } = one {
                *mode = Mode::Standard;
            }
        },
        |one| {
            if let Operation::Send { gaps, .. } | Operation::Receive { gaps, .. } = one {
                *gaps = false;
            }
        },
        |one| {
            if let Operation::Send { persistent, .. } | Operation::Receive { persistent, .. } = one {
                *persistent = false;
            }
        },
        |one| {
            if let Operation::Receive { from, .. } = one {
                *from = None;
            }
        },
        |one| match one {
            Operation::Send { tag, .. } => *tag = 0,
            Operation::Receive { tag, .. } => *tag = None,
            _ => {}
        },
    ];
    changed(&operation, &changes)
}

fn shorten(operation: &mut Operation, most: usize) {
    if let Operation::Send { length, .. } | Operation::Receive { room: length, .. } = operation {
        *length = most.min(*length);
    }
}
