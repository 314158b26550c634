// SPDX-License-Identifier: MIT OR Apache-2.0
//! Persistent requests of a program: made, started again and again, and freed. Grade: test. Threads: one. Tests: those
//! of the crate.

use super::{Receive, World};
use crate::model::Got;
use crate::process::{Handle, Wanted};
use crate::program::{Mode, Operation};

/// A persistent request.
#[derive(Clone, Copy)]
pub(super) struct Persistent {
    operation: Operation,
    /// The context number of its communicator.
    number: u32,
    handle: Handle,
    /// Number of its last use: twice the index of its message or wish, and 1 more for a wish.
    last: Option<usize>,
}

impl World {
    /// Makes a request. Each start of a buffered send makes another one for its copy.
    pub(super) fn make_persistent(&mut self, operation: Operation) {
        let (number, handle) = match operation {
            Operation::Send { from, to, context, tag, length, mode, gaps, .. } => {
                let (_, number) = self.communicator(context);
                (number, self.process(from).make_send((to, number, tag), mode, (&vec![0; length], gaps)))
            }
            Operation::Receive { at, from, context, tag, room, gaps, .. } => {
                let wanted = self.wanted(context, from, tag);
                (wanted.context, self.process(at).make_receive(wanted, (room, gaps)))
            }
            _ => return,
        };
        self.process(operation.at()).make_persistent(handle);
        self.persistent[operation.at() as usize].push(Persistent { operation, number, handle, last: None });
    }

    fn is_active(&self, one: &Persistent) -> bool {
        one.last.is_some_and(|last| match last % 2 {
            0 => self.sends.contains_key(&(last / 2)),
            _ => self.receives[&(last / 2)].bytes.is_none(),
        })
    }

    pub(super) fn start_persistent(&mut self, at: u32, which: usize) {
        let all = self.persistent[at as usize].iter().enumerate();
        let idle: Vec<usize> = all.filter(|(_, one)| !self.is_active(one)).map(|(place, _)| place).collect();
        let Some(place) = idle.get(which % idle.len().max(1)).copied() else { return };
        let Persistent { operation, number, handle, .. } = self.persistent[at as usize][place];
        let last = match operation {
            Operation::Send { from, to, context, tag, length, mode: Mode::Buffered, gaps, .. } => {
                return self.send((from, to), (context, tag), length, (Mode::Buffered, gaps));
            }
            Operation::Send { from, to, context, tag, length, mode, .. } => {
                let Some((message, bytes)) = self.begin_send((from, to), (context, tag), length, mode) else { return };
                self.sends.insert(message, (from, handle));
                self.process(from).start(handle, 2 * message, &bytes);
                2 * message
            }
            Operation::Receive { from, tag, room, gaps, .. } => {
                let wanted = Wanted::new(number, from, tag);
                let wish = self.wish(at, wanted, true, Got::Nothing);
                self.receives.insert(wish, Receive { at, handle, room, gaps, bytes: None, has_failed: false });
                self.process(at).start(handle, 2 * wish + 1, &[]);
                2 * wish + 1
            }
            _ => return,
        };
        self.persistent[at as usize][place].last = Some(last);
    }

    pub(super) fn free_persistent(&mut self, at: u32, which: usize) {
        let all = &mut self.persistent[at as usize];
        if !all.is_empty() {
            let Persistent { handle, .. } = all.remove(which % all.len());
            self.process(at).free(handle);
        }
    }

    /// Frees the persistent requests of a process: those of the communicator with this number, or all.
    pub(super) fn free_persistent_of(&mut self, at: usize, number: Option<u32>) {
        let is_meant = |one: &mut Persistent| number.is_none_or(|number| number == one.number);
        for Persistent { handle, .. } in self.persistent[at].extract_if(.., is_meant).collect::<Vec<_>>() {
            self.process(at as u32).free(handle);
        }
    }
}
