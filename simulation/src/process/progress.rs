// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress of a process: polls its ports, and handles completions. Whole messages with a posted receive are delivered
//! within the poll, as the PML does. Grade: test. Threads: one.

use std::sync::atomic::Ordering;

use ibex::messenger::header::Header;
use ibex::messenger::receive::{self, search};
use ibex::messenger::rendezvous::{fragments, read};
use ibex::messenger::request::Transfer;
use ibex::messenger::route::Route;
use ibex::messenger::send;
use ibex::transport::{
    Arrived, Completion, EndpointId, Failed, Immediate, Polled, TakesMessages, TakesRequests, Token,
};

use ibex::messenger::host::Host as _;

use super::ports::{Content, Record};
use super::{Process, TAG};

/// How a message arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct ByRail {
    pub(super) rail: usize,
    pub(super) immediate: Immediate,
    pub(super) qp_num: u32,
}

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
        assert_eq!(immediate.tag(), TAG);
        if process.is_multi_rail() && !process.multi_rail.may_be_taken(*rail, immediate.endpoint()) {
            return false;
        }
        let bytes = process.memory.with(addr, len as usize, |bytes| bytes.to_vec());
        let is_taken = search::is_taken(*process, &bytes, |_, _, _, _| false);
        if is_taken && process.is_multi_rail() {
            process.multi_rail.count(*rail, immediate.endpoint());
        }
        is_taken
    }
}

impl TakesRequests for Process {
    fn takes_request(&mut self, token: Token) -> bool {
        let (Record::Buffer(buffer), [rail]) = (Record::of(token), &mut *self.rails) else { return false };
        let is_silent = rail.buffers.is_silent(buffer);
        if is_silent {
            rail.buffers.give_back(buffer);
        }
        is_silent
    }
}

/// Most batches before pending messages have their turn: more than a receive queue holds.
const BATCHES: usize = 256;

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
        (0..self.rails.len()).map(|rail| self.poll_rail(rail)).sum()
    }

    fn poll_rail(&mut self, index: usize) -> usize {
        let rail = &mut self.rails[index];
        let mut port = rail.port.take().expect("a port polls once at a time");
        let mut batch = rail.batch.take().expect("a port polls once at a time");
        let Polled { taken, reported } = port.poll_direct(&mut batch, Receiver { process: self, rail: index });
        let is_short = port.is_short_of_receives();
        self.rails[index].port = Some(port);
        for place in 0..reported {
            let completion = batch.completions()[place];
            self.handle(index, completion);
        }
        if reported > 0 && is_short {
            self.port(index).release(&mut batch);
        }
        self.rails[index].batch = Some(batch);
        taken + reported
    }

    /// Sends pending messages once polls find nothing more: a message that holds this process back may be the last that
    /// has arrived.
    fn have_turns(&mut self) {
        let empty = |process: &Process| -> u64 {
            process.rails.iter().map(|rail| rail.counters.empty_polls.load(Ordering::Relaxed)).sum()
        };
        let mut before = empty(self);
        for _ in 0..BATCHES {
            self.poll_rails();
            let after = empty(self);
            if after - before == self.rails.len() as u64 {
                break;
            }
            before = after;
        }
        let settings = self.settings;
        for route in std::mem::take(&mut self.messenger.flow.turns) {
            send::in_turn(&settings, self, route);
        }
    }

    fn handle(&mut self, rail: usize, completion: Completion) {
        let settings = self.settings;
        match completion {
            Completion::Message { len, slot, immediate, qp_num, .. } => {
                let bytes = self.port(rail).copy_received(slot, len);
                assert_eq!(bytes.len(), len as usize, "a message is in its slot");
                let by = ByRail { rail, immediate, qp_num };
                if self.is_multi_rail() { self.arrived(&bytes, by) } else { self.message(&bytes, by) }
            }
            Completion::Request { token, to, outcome } => self.request_ended(rail, token, to, outcome),
            Completion::PeerFailed { peer } => {
                let route = Route::new(rail, peer);
                if !self.moves_from(route) {
                    let rank = self.rank_of(route) as u32;
                    self.lost.insert(rank);
                    self.fails();
                }
                fragments::feed_starved(&settings, self);
            }
            Completion::LinkChanged { is_up } => {
                self.link_changed(rail, is_up);
                fragments::feed_starved(&settings, self);
            }
        }
    }

    /// Returns the route to the sender of a message.
    pub(super) fn sender(&mut self, by: ByRail) -> Option<Route> {
        let sender = self.port(by.rail).sender(by.immediate, by.qp_num)?;
        Some(Route::new(by.rail, sender))
    }

    /// Handles a message whose turn it is.
    pub(super) fn message(&mut self, bytes: &[u8], by: ByRail) {
        let (header, _) = Header::decode(bytes).expect("processes send headers");
        let (sender, settings, kept) = (self.sender(by), self.settings, self.messenger.flow.kept.bytes());
        if let (Header::Flow(word), Some(sender)) = (header, sender) {
            self.hears(sender, word);
        }
        let is_early = is_early(&header, |context| self.has_context(context));
        receive::handle(&settings, self, bytes, || sender);
        assert!(!is_early || self.messenger.flow.kept.bytes() > kept, "an early message takes memory");
        if self.messenger.flow.kept.bytes() > kept {
            // Also if the messenger keeps it until its communicator is added.
            let rank = self.rank_of(sender.expect("the sender of a message is known"));
            self.must_hold_back(rank);
        }
    }

    fn request_ended(&mut self, rail: usize, token: Token, to: EndpointId, outcome: Result<(), Failed>) {
        let settings = self.settings;
        match Record::of(token) {
            Record::Buffer(buffer) => {
                let content = self.rails[rail].buffers.give_back(buffer);
                match content {
                    _ if outcome.is_err() => {
                        self.fails();
                        // A send to another peer may wait for this buffer.
                        fragments::feed_starved(&settings, self);
                    }
                    Content::Free => panic!("a free buffer was sent"),
                    Content::Silent => {}
                    Content::Fragment(send) => fragments::done(&settings, self, send),
                }
            }
            Record::Read(receive) => read::done(&settings, self, receive, rail, outcome),
            Record::Sent(_) if outcome.is_err() => self.fails(),
            Record::Sent(send) => {
                if matches!(self.requests.get(send).core.transfer, Transfer::Sending(_)) {
                    return fragments::done(&settings, self, send);
                }
                self.finish(send);
            }
            Record::Turn if outcome.is_ok() => self.messenger.flow.turns.push(Route::new(rail, to)),
            // The port has reported the failure of the peer before.
            Record::Turn => {}
        }
    }

    /// Has every port ask for the completions of requests that asked for none. Polls take them afterwards.
    pub(crate) fn reclaim(&mut self) {
        for rail in &mut self.rails {
            rail.port.as_mut().expect("nothing is called while the port polls").reclaim(&mut |_| false);
        }
    }
}

/// Whether a message begins a send, in a communicator that is not there yet.
fn is_early(header: &Header, is_there: impl Fn(u32) -> bool) -> bool {
    use Header::{Eager, ReadyToSend, ReadyToSendKeyed, Synchronous};
    match header {
        Eager(of) | Synchronous(of, _) | ReadyToSend(of, ..) | ReadyToSendKeyed(of, ..) => !is_there(of.context),
        _ => false,
    }
}
