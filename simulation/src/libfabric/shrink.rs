// SPDX-License-Identifier: MIT OR Apache-2.0
//! What makes a program of libfabric simpler. Called by the crate's `shrink`. Grade: test. Threads: plain data. Tests:
//! those of the crate.

use super::{How, Operation, Program};
use crate::program;
use crate::shrink::{Shrinks, changed};

impl Shrinks for Program {
    type Operation = Operation;

    fn operations(&mut self) -> &mut Vec<Operation> {
        &mut self.operations
    }

    fn schedule(&mut self) -> &mut u64 {
        &mut self.limits.schedule
    }

    fn without_process(&self, gone: u32) -> Option<Self> {
        let processes = self.limits.processes;
        let operations = self.operations.iter().filter_map(|one| one.without(gone)).collect();
        let limits = program::Program { processes: processes - 1, ..self.limits.clone() };
        (gone < processes && processes > 1).then_some(Program { limits, operations, ..self.clone() })
    }

    fn simpler(&self) -> Vec<Self> {
        let changes: [fn(&mut Program); 9] = [
            |program| program.limits.unexpected_memory = 1 << 20,
            |program| program.limits.window = 8,
            |program| program.limits.slots = 16,
            |program| program.limits.hello_faults = 0,
            |program| program.limits.post_faults = 0,
            |program| (program.limits.buffers, program.limits.bounces) = (4, 64),
            |program| program.limits.wraps = false,
            |program| program.counts = false,
            |program| (program.is_selective, program.flags) = (false, 0),
        ];
        changed(self, &changes)
    }

    fn simpler_operations(operation: Operation) -> Vec<Operation> {
        let changes: [fn(&mut Operation); 6] = [
            |one| shorten(one, 8),
            |one| shorten(one, 100),
            |one| shorten(one, 600),
            |one| {
                if let Operation::Send { how, data, .. } = one {
                    (*how, *data) = (How::Default, None);
                }
            },
            |one| {
                if let Operation::Send { pieces, .. } | Operation::Receive { pieces, .. } = one {
                    *pieces = 1;
                }
            },
            |one| {
                if let Operation::Receive { from, .. } | Operation::Search { from, .. } = one {
                    *from = None;
                }
            },
        ];
        changed(&operation, &changes)
    }
}

fn shorten(operation: &mut Operation, most: usize) {
    if let Operation::Send { length, .. } | Operation::Receive { room: length, .. } = operation {
        *length = most.min(*length);
    }
}
