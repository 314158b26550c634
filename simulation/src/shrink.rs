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

/// Returns a small program that still fails. `fails`: whether a program fails.
pub fn shrink(program: &Program, fails: impl Fn(&Program) -> bool) -> Program {
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

struct Search<F> {
    best: Program,
    fails: F,
    runs: usize,
}

impl<F: Fn(&Program) -> bool> Search<F> {
    /// Takes a program if it fails.
    fn tries(&mut self, mut program: Program) -> bool {
        if program == self.best {
            return false;
        }
        let first = program.schedule;
        for other in 0..SCHEDULES {
            if self.runs >= RUNS {
                return false;
            }
            self.runs += 1;
            program.schedule = first.wrapping_add(other);
            if (self.fails)(&program) {
                self.best = program;
                return true;
            }
        }
        false
    }

    fn without_operations(&mut self) {
        let mut size = self.best.operations.len().div_ceil(2);
        while size > 0 {
            let mut start = 0;
            while start < self.best.operations.len() {
                let mut smaller = self.best.clone();
                let end = (start + size).min(smaller.operations.len());
                smaller.operations.drain(start..end);
                if !self.tries(smaller) {
                    start += size;
                }
            }
            size /= 2;
        }
    }

    fn without_processes(&mut self) {
        let mut gone = 0;
        while gone < self.best.processes && self.best.processes > 1 {
            let mut smaller = self.best.clone();
            smaller.processes -= 1;
            smaller.operations = smaller.operations.iter().filter_map(|one| one.without(gone)).collect();
            if !self.tries(smaller) {
                gone += 1;
            }
        }
    }

    fn simplified(&mut self) {
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
        for change in changes {
            let mut simpler = self.best.clone();
            change(&mut simpler);
            self.tries(simpler);
        }
        for at in 0..self.best.operations.len() {
            for simpler in simpler(self.best.operations[at]) {
                let mut program = self.best.clone();
                program.operations[at] = simpler;
                self.tries(program);
            }
        }
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
    let simplified = |change: fn(&mut Operation)| {
        let mut simpler = operation;
        change(&mut simpler);
        simpler
    };
    changes.into_iter().map(simplified).filter(|simpler| *simpler != operation).collect()
}

fn shorten(operation: &mut Operation, most: usize) {
    if let Operation::Send { length, .. } | Operation::Receive { room: length, .. } = operation {
        *length = most.min(*length);
    }
}
