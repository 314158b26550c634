// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress of a process: polls its ports, and handles completions. Whole messages with a posted receive are delivered
//! within the poll, as the PML does. Grade: test. Threads: one.

use ibex::messenger::host::{Memory as _, Process as _, Record};
use ibex::messenger::rails::completions::{self, Receiver};
use ibex::messenger::receive::search;
use ibex::messenger::send;
use ibex::transport::{Completion, Polled, TakesRequests, Token};

use super::Process;

impl TakesRequests for Process {
    fn takes_request(&mut self, token: Token) -> bool {
        match (Process::record_of(token), &mut *self.messenger.rails.buffers) {
            (Some(Record::Buffer(buffer)), [buffers]) => buffers.give_back_silent(buffer),
            _ => false,
        }
    }
}

impl Process {
    /// Polls each port once, then sends the pending messages whose turn it is. Returns the number of completions.
    pub(crate) fn poll(&mut self) -> usize {
        let count = self.poll_rails();
        if !self.messenger.flow.turns.is_empty() {
            let shared = self.shared();
            send::in_turns(&*shared, self, |process| _ = process.poll_rails());
        }
        count
    }

    fn poll_rails(&mut self) -> usize {
        let shared = self.shared();
        let near = if self.settings.per_host > 1 { self.poll_locally(&shared) } else { 0 };
        near + (0..self.batches.len()).map(|rail| self.poll_rail(rail)).sum::<usize>()
    }

    fn poll_rail(&mut self, index: usize) -> usize {
        let shared = self.shared();
        let mut batch = self.batches[index].take().expect("a port polls once at a time");
        let (mut port, mut deferred) = (shared.port(index), None);
        let Polled { taken, reported } = self.taking(|process| {
            if shared.is_multi_rail() {
                port.poll_direct(&mut batch, Receiver::<_, true>::new(process, index, None))
            } else {
                let defers = process.paths.is_some();
                port.poll_direct(&mut batch, Receiver::<_, false>::new(process, index, defers.then_some(&mut deferred)))
            }
        });
        let is_short = port.is_short_of_receives();
        drop(port);
        if let Some(deferred) = &deferred {
            search::deliver(&*shared, self, deferred);
        }
        for completion in batch.completions() {
            let is_own = completions::handle(&*shared, self, index, completion);
            let of_port = matches!(completion, Completion::PeerFailed { .. } | Completion::LinkChanged { .. });
            assert!(is_own || of_port, "nobody else uses the port");
        }
        if reported > 0 && is_short {
            shared.port(index).release(&mut batch);
        }
        self.batches[index] = Some(batch);
        taken + reported
    }

    /// Has every port ask for the completions of requests that asked for none. Polls take them afterwards.
    pub(crate) fn reclaim(&mut self) {
        (0..self.shared.rail_count()).for_each(|rail| self.shared.port(rail).reclaim(&mut |_| false));
    }
}
