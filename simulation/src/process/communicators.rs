// SPDX-License-Identifier: MIT OR Apache-2.0
//! The communicators of a process, by context number: added at their first use, freed, and dropped once no request
//! refers to them, as Open MPI does. Grade: test. Threads: one.

use ibex::messenger::flow_control;
use ibex::messenger::receive::search;

use super::{Communicator, Process};

impl Process {
    /// Adds a communicator unless it is there, and delivers the messages that came before.
    pub(crate) fn add_context(&mut self, context: u32) {
        let Some(early) = self.messenger.contexts.add(context, context) else { return };
        self.communicators.insert(context, Communicator::default());
        self.tell_communicator(context);
        let shared = self.shared();
        search::deliver_early(&*shared, self, context, early);
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
            self.tell_freed(context);
            for message in gone.queues.into_messages() {
                flow_control::give_up(&*shared, self, &message.message);
            }
            self.freed -= 1;
        }
    }
}
