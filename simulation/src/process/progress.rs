// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress of a process: polls its ports, and handles completions. Whole messages with a posted receive are delivered
//! within the poll, as the PML does. Grade: test. Threads: one.

use std::sync::atomic::Ordering;

use ibex::messenger::host::{Memory as _, Process as _, Record};
use ibex::messenger::rails::completions::{self, ByRail};
use ibex::messenger::receive::search;
use ibex::messenger::route::Route;
use ibex::messenger::send;
use ibex::transport::{Arrived, Completion, Polled, TakesMessages, TakesRequests, Token};

use super::{Process, Shared};

/// Delivers whole messages that have a posted receive while a port polls.
struct Receiver<'a> {
    process: &'a mut Process,
    rail: usize,
}

impl TakesMessages for Receiver<'_> {
    type Requests = Process;

    fn requests(&mut self) -> &mut Process {
        self.process
    }

    fn takes(&mut self, Arrived { addr, len, immediate }: Arrived) -> bool {
        let Receiver { process, rail } = self;
        assert_eq!(immediate.tag(), Shared::TAG);
        let (is_multi_rail, multi_rail) = (process.shared.is_multi_rail(), &process.messenger.rails.multi_rail);
        if is_multi_rail && !multi_rail.may_be_taken(*rail, immediate.endpoint()) {
            return false;
        }
        let bytes = process.memory.with(addr, len as usize, |bytes| bytes.to_vec());
        let is_taken = search::is_taken(*process, &bytes, |_, _, _, _| false);
        if is_taken && is_multi_rail {
            process.messenger.rails.multi_rail.count(*rail, immediate.endpoint());
        }
        is_taken
    }
}

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
            self.have_turns();
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
        let mut port = shared.port(index);
        let Polled { taken, reported } = port.poll_direct(&mut batch, Receiver { process: self, rail: index });
        let is_short = port.is_short_of_receives();
        drop(port);
        for place in 0..reported {
            let completion = batch.completions()[place];
            self.handle_completion(&shared, index, completion);
        }
        if reported > 0 && is_short {
            shared.port(index).release(&mut batch);
        }
        self.batches[index] = Some(batch);
        taken + reported
    }

    fn have_turns(&mut self) {
        let shared = self.shared();
        let empty =
            || -> u64 { shared.rails.iter().map(|rail| rail.counters.empty_polls.load(Ordering::Relaxed)).sum() };
        send::in_turns(&*shared, self, |process| {
            let before = empty();
            process.poll_rails();
            empty() - before == shared.rail_count() as u64
        });
    }

    fn handle_completion(&mut self, shared: &Shared, rail: usize, completion: Completion) {
        match completion {
            Completion::Message { len, slot, immediate, qp_num, .. } => {
                let bytes = shared.port(rail).copy_received(slot, len);
                assert_eq!(bytes.len(), len as usize, "a message is in its slot");
                completions::message(shared, self, &bytes, ByRail { rail, immediate, qp_num });
            }
            Completion::Request { token, to, outcome } => {
                let record = Process::record_of(token).expect("a port returns tokens that it was given");
                completions::request(shared, self, (rail, to), record, outcome);
            }
            Completion::PeerFailed { peer } => completions::peer_failed(shared, self, Route::new(rail, peer)),
            Completion::LinkChanged { is_up } => completions::link_changed(shared, self, rail, is_up),
        }
    }

    /// Has every port ask for the completions of requests that asked for none. Polls take them afterwards.
    pub(crate) fn reclaim(&mut self) {
        (0..self.shared.rail_count()).for_each(|rail| self.shared.port(rail).reclaim(&mut |_| false));
    }
}
