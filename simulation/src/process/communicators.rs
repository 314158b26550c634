// SPDX-License-Identifier: MIT OR Apache-2.0
//! The communicators of a process, by context number: added at their first use, freed, and dropped once no request
//! refers to them, as Open MPI does. Grade: test. Threads: one.

use ibex::messenger::receive::search;
use ibex::messenger::{dynamic_processes, flow_control};

use super::{Communicator, Process, name};

/// Context number, less a rank, of the communicator that a process has only with that other one.
const PRIVATE: u32 = 1 << 30;

impl Process {
    /// Adds a communicator unless it is there, and delivers the messages that came before.
    pub(crate) fn add_context(&mut self, context: u32) {
        let Some(early) = self.messenger.contexts.add(context, context) else { return };
        let mut communicator = Communicator::default();
        communicator.queues.set_raises_events(&communicator.lengths, self.paths.is_some());
        self.communicators.insert(context, communicator);
        self.record_communicator(context);
        let shared = self.shared();
        let senders: Vec<i32> = early.iter().map(|(envelope, _)| envelope.source()).collect();
        search::deliver_early(&*shared, self, context, early);
        // No receive is posted yet.
        for sender in senders {
            self.must_hold_back(sender);
        }
    }

    /// Parts from a process, with which this one has no common communicator any more.
    pub(crate) fn part(&mut self, other: u32) {
        if self.dynamic_processes.insert(other) {
            self.messenger.dynamic_processes.is_met = true;
            self.meet(other);
        }
        let shared = self.shared();
        dynamic_processes::left(&*shared, self, PRIVATE + other);
        self.holds_back.remove(&(other as i32));
        self.held_by.remove(&(other as i32));
    }

    /// Meets a process in a common communicator.
    pub(crate) fn meet(&mut self, other: u32) {
        let shared = self.shared();
        dynamic_processes::joined(&*shared, self, PRIVATE + other, [name(other)].into());
    }

    /// Returns the communicator with this context number.
    pub(super) fn with_context(&mut self, context: u32) -> &mut Communicator {
        self.communicators.get_mut(&context).expect("a communicator is added before it is used")
    }

    /// Frees a communicator: it goes once no request refers to it.
    pub(crate) fn free_context(&mut self, context: u32) {
        self.add_context(context);
        self.with_context(context).is_freed = true;
        self.freed += 1;
        self.drop_freed();
    }

    /// Whether a communicator with this context number is there, freed or not.
    pub(crate) fn has_context(&self, context: u32) -> bool {
        self.communicators.contains_key(&context)
    }

    /// Drops the freed communicators to which no request refers, and their messages.
    pub(super) fn drop_freed(&mut self) {
        let idle = |(context, of): (&u32, &Communicator)| of.is_freed && !self.requests.refer_to(*context);
        let idle: Vec<u32> = self.communicators.iter().filter(|one| idle(*one)).map(|(context, _)| *context).collect();
        let shared = self.shared();
        for context in idle {
            self.messenger.contexts.remove(context).expect("a communicator goes once");
            let gone = self.communicators.remove(&context).expect("a communicator goes once");
            assert!(gone.queues.posted() == 0, "a posted receive refers to its communicator");
            self.record_freed(context);
            for message in gone.queues.into_messages() {
                flow_control::give_up(&*shared, self, &message.message);
            }
            self.freed -= 1;
        }
    }
}
