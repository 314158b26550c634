// SPDX-License-Identifier: MIT OR Apache-2.0
//! The completion side of a port: takes completions in batches and turns them into events.
//!
//! Called by the plugin's progress, hot: an empty poll is a countdown, one call into the provider and two counts. Every so
//! many polls it also looks after connections (`connecting.rs`, setup grade). Failures are cold. One thread at a time
//! (`&mut Port`). Tests: the device tests in `hw-tests`.

use crate::bounce::Bounce;
use crate::counters::{Counters, add, subtract};
use crate::endpoint::{Endpoint, State};
use crate::event::{Batch, EndpointId, Event, Failed, Immediate, Late, Token, WrId};
use crate::failure::{Cause, Failure};
use crate::patience::Patience;
use crate::port::Port;
use crate::posted::Posted;
use crate::watch;
use ibex_ffi::verbs::{Status, WorkCompletion};
use std::collections::VecDeque;
use std::io;

/// What seldom comes out of the completion queue, and is dealt with after the batch it came in.
#[derive(Debug)]
pub(crate) enum Rare {
    /// A request that did not succeed.
    Failed(WorkCompletion),
    /// A message that is not ibex's.
    Malformed { slot: u32 },
    /// A message that came while handshakes were under way, the last word of one of which it may stand for.
    Early { immediate: Immediate, qp_num: u32 },
}

impl Port {
    /// Takes what has happened since the last call, at most a batch of it. Returns how many events there are. What the batch
    /// held before is released first: that is done while nothing is waited for, instead of between a message and who waits
    /// for it.
    #[inline]
    pub fn poll(&mut self, batch: &mut Batch) -> usize {
        self.poll_with::<false>(batch)
    }

    /// As [`Self::poll`], while a tool listens: with the adapter's stamps ([`Batch::stamp`]) where it wants them.
    #[cold]
    #[inline(never)]
    pub fn poll_watched(&mut self, batch: &mut Batch) -> usize {
        if self.wants_stamps() { self.poll_with::<true>(batch) } else { self.poll_with::<false>(batch) }
    }

    /// Whether a tool wants the adapter's stamps, and there are any.
    fn wants_stamps(&self) -> bool {
        self.source.is_some() && watch::wants_stamps()
    }

    #[inline]
    fn poll_with<const STAMPED: bool>(&mut self, batch: &mut Batch) -> usize {
        self.release(batch);
        self.countdown -= 1;
        if self.countdown == 0 {
            self.countdown = self.connect();
        }
        if self.overflow.is_empty() || self.drain_overflow(batch) {
            self.take::<STAMPED>(batch);
        }
        if self.freed {
            self.freed = false;
            if !self.backlog.is_empty() {
                self.work_backlog();
            }
        }
        batch.events().len()
    }

    /// Gives the receive slots of a batch back, once the callbacks of its events are done, and empties it.
    #[inline]
    pub fn release(&mut self, batch: &mut Batch) {
        for event in batch.events() {
            if let Event::Received { slot, .. } = event {
                self.receives.release(*slot);
            }
        }
        if self.receives.are_due() {
            self.post_receives();
        }
        batch.clear();
    }

    /// Whether the adapter has so few receives left that slots should be released without waiting for the next poll.
    #[inline]
    #[must_use]
    pub fn is_short_of_receives(&self) -> bool {
        self.receives.are_short()
    }

    /// Gives the adapter the released receive slots.
    #[inline]
    fn post_receives(&mut self) {
        if let Err(error) = self.receives.post() {
            self.lose(&error, "posting to the shared receive queue");
        }
    }

    /// A copy of the first `len` bytes of a received message, for a caller that may not use its address. Empty where the slot
    /// is not so large. To be called before [`Port::release`].
    #[must_use]
    pub fn copy_received(&self, slot: u32, len: u32) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        if self.receives.copy(slot, &mut bytes) { bytes } else { Vec::new() }
    }

    /// Who sent a message that came by the local queue pair `qp_num`; `None` where that cannot be told: who it says it is from
    /// holds only if it came by that endpoint's queue pair.
    #[must_use]
    pub fn sender(&self, immediate: Immediate, qp_num: u32) -> Option<EndpointId> {
        let named = immediate.endpoint();
        self.connection(named).filter(|connection| connection.qp.number() == qp_num).map(|_| named)
    }

    /// Takes completions while nobody can be told of them: their events wait for the next polls, but for requests that have
    /// succeeded and of which `done` takes the token.
    #[cold]
    pub(crate) fn take_ahead(&mut self, done: &mut dyn FnMut(Token) -> bool) {
        self.countdown -= 1;
        if self.countdown == 0 {
            self.countdown = self.connect();
        }
        let mut events = std::mem::take(&mut self.overflow);
        let mut batch = Batch::default();
        loop {
            batch.clear();
            if self.wants_stamps() {
                self.take::<true>(&mut batch);
            } else {
                self.take::<false>(&mut batch);
            }
            let mut is_taken =
                |event: Event| matches!(event, Event::Completed { token, outcome: Ok(()), .. } if done(token));
            events.extend(batch.late().filter(|late| !is_taken(late.event)));
            events.append(&mut self.overflow);
            if batch.events().is_empty() {
                break;
            }
        }
        self.overflow = events;
    }

    /// Takes a batch of completions.
    #[inline]
    fn take<const STAMPED: bool>(&mut self, batch: &mut Batch) {
        let Port { cq, counters, receives, connector, rare, .. } = self;
        let counters: &Counters = counters;
        add(&counters.polls, 1);
        let polled = if STAMPED { cq.poll_stamped() } else { cq.poll().map(|completions| (completions, &[][..])) };
        let (mut unstamped, mut waiting) = (batch.events().len(), self.overflow.len());
        let (completions, stamps) = match polled {
            Ok(([], _)) => return add(&counters.empty_polls, 1),
            Ok(completions) => completions,
            Err(error) => return self.lose(&error, "polling the completion queue"),
        };
        add(&counters.completions, completions.len() as u64);
        for (index, completion) in completions.iter().enumerate() {
            if STAMPED && index > 0 {
                unstamped = batch.stamp_from(unstamped, stamps[index - 1]);
                waiting = stamp_waiting(&mut self.overflow, waiting, stamps[index - 1]);
            }
            let id = WrId(completion.id());
            if !completion.succeeded() {
                rare.push(Rare::Failed(*completion));
                continue;
            }
            if id.is_send() {
                let done =
                    retire(&mut self.endpoints, &mut self.posted, &mut self.bounce, id, batch, &mut self.overflow);
                self.credits += done;
                self.freed |= done > 0;
                continue;
            }
            let slot = id.low();
            let addr = receives.filled(slot, counters);
            let (Some(immediate), Some(addr)) = (completion.immediate().map(Immediate), addr) else {
                rare.push(Rare::Malformed { slot });
                continue;
            };
            let len = completion.len();
            add(&counters.received, 1);
            add(&counters.received_bytes, u64::from(len));
            let qp_num = completion.qp_num();
            if !connector.active.is_empty() {
                rare.push(Rare::Early { immediate, qp_num });
            }
            if let Err(event) = batch.push(Event::Received { addr, len, slot, immediate, qp_num }) {
                self.overflow.push_back(event.into());
            }
        }
        if STAMPED && let Some(last) = stamps.last() {
            batch.stamp_from(unstamped, *last);
            stamp_waiting(&mut self.overflow, waiting, *last);
        }
        if !self.rare.is_empty() {
            self.rare_completions(batch);
        }
    }

    /// Deals with what seldom comes.
    #[cold]
    fn rare_completions(&mut self, batch: &mut Batch) {
        for completion in std::mem::take(&mut self.rare) {
            match completion {
                Rare::Failed(completion) => self.failed_completion(&completion),
                Rare::Malformed { slot } => {
                    add(&self.counters.malformed, 1);
                    self.receives.release(slot);
                    self.post_receives();
                }
                Rare::Early { immediate, qp_num } => {
                    self.confirmed_by_data(immediate.endpoint(), qp_num);
                }
            }
        }
        self.drain_overflow(batch);
    }

    /// Moves what did not fit earlier to the batch. True where that leaves it empty enough for completions.
    #[cold]
    fn drain_overflow(&mut self, batch: &mut Batch) -> bool {
        while batch.room() > 0 {
            let Some(late) = self.overflow.pop_front() else { break };
            batch.push_late(late);
        }
        batch.room() >= self.cq.batch()
    }

    /// A request did not succeed: everything before it did, it did not, and its connection is lost.
    #[cold]
    fn failed_completion(&mut self, completion: &WorkCompletion) {
        let (status, vendor) = completion.status();
        let id = WrId(completion.id());
        if !id.is_send() {
            return self.failed_receive(id.low(), completion);
        }
        let to = id.endpoint();
        let Some(endpoint) = self.endpoints.get_mut(to.index() as usize) else { return };
        let Some(connection) = endpoint.connection.as_deref_mut() else { return };
        let Some(done) = connection.retire(id.low()) else { return };
        self.credits += done;
        self.freed = true;
        self.bounce.take_back(&mut connection.bounced, id.low());
        let mut failed = None;
        while let Some((sequence, token)) = self.posted.pop_through(&mut connection.list, id.low()) {
            if sequence == id.low() {
                failed = Some(token);
            } else {
                self.overflow.push_back(Event::Completed { token, to, outcome: Ok(()) }.into());
            }
        }
        // The reason before what failed for it: who is told of a failed request may end the job at once.
        let is_first = self.give_up(to, Cause::Completion { status, vendor });
        if let Some(token) = failed {
            self.overflow
                .push_back(Event::Completed { token, to, outcome: Err(Failed { status, posted: true }) }.into());
        }
        if is_first {
            self.fail_pending(to);
        }
    }

    /// A receive did not succeed: a message larger than a slot, or a queue pair that was given up.
    #[cold]
    fn failed_receive(&mut self, slot: u32, completion: &WorkCompletion) {
        self.receives.filled(slot, &self.counters);
        self.receives.release(slot);
        self.post_receives();
        let (status, vendor) = completion.status();
        let number = completion.qp_num();
        let peer = self
            .endpoints
            .iter()
            .position(|endpoint| endpoint.connection.as_ref().is_some_and(|c| c.qp.number() == number));
        if let Some(index) = peer.filter(|_| status != Status::FLUSHED) {
            self.fail(EndpointId::from_index(index as u32), Cause::Completion { status, vendor });
        }
    }

    /// Gives a connection up: reports it once, then fails what waits, and lets the adapter flush what it has.
    #[cold]
    pub(crate) fn fail(&mut self, to: EndpointId, cause: Cause) {
        if self.give_up(to, cause) {
            self.fail_pending(to);
        }
    }

    /// [`Self::fail`], but for what waits. False where it was given up before.
    fn give_up(&mut self, to: EndpointId, cause: Cause) -> bool {
        let Some(endpoint) = self.endpoints.get_mut(to.index() as usize) else { return false };
        if endpoint.failure.is_some() {
            return false;
        }
        let (mut qp_num, mut patience) = (0, Patience::default());
        if let Some(connection) = endpoint.connection.as_deref_mut() {
            if connection.is_made() {
                subtract(&self.counters.connections, 1);
            }
            connection.state = State::Failed;
            connection.set_limit();
            (qp_num, patience) = (connection.qp.number(), connection.patience);
            // Where even this fails the queue pair is in error already, or the device is gone.
            let _ = connection.qp.fail();
        }
        self.connector.take_successor(to);
        self.connector.settle(to);
        let failure = Failure {
            peer: endpoint.name,
            host: self.directory.host(endpoint.name),
            port: self.attributes.place(),
            qp_num,
            cause,
            patience,
        };
        if !self.closing {
            watch::failed(endpoint.name.rank, self.connector.me.port, &failure);
        }
        add(&self.counters.failed, 1);
        if !endpoint.forgotten && !self.closing {
            self.untold.push(failure.to_string());
            self.overflow.push_back(Event::PeerFailed { peer: to }.into());
        }
        endpoint.failure = Some(Box::new(failure));
        true
    }

    /// The port itself can no longer be used: every connection fails.
    #[cold]
    pub(crate) fn lose(&mut self, error: &io::Error, doing: &str) {
        let why = format!("{doing} failed ({error}); see the kernel's log for the device");
        for index in 0..self.endpoints.len() as u32 {
            let peer = EndpointId::from_index(index);
            if self.connection(peer).is_some() {
                self.fail(peer, Cause::Port(why.clone()));
            }
        }
    }

    /// Why connections failed, in words, each once. To be said before anything that failed for it is handed on: a call that
    /// is refused comes before the event of the failure, and with several threads a failed request may, too.
    #[must_use]
    pub fn take_untold(&mut self) -> Vec<String> {
        std::mem::take(&mut self.untold)
    }

    /// Why the connection to `peer` failed; `None` while it has not.
    #[must_use]
    pub fn failure(&self, peer: EndpointId) -> Option<&Failure> {
        self.endpoints.get(peer.index() as usize)?.failure.as_deref()
    }
}

/// Gives the events that wait, from the `from`th on, the adapter's stamp. Returns how many wait.
fn stamp_waiting(overflow: &mut VecDeque<Late>, from: usize, raw: u64) -> usize {
    overflow.iter_mut().skip(from).for_each(|late| late.stamp = Some(raw));
    overflow.len()
}

/// A send, and every request before it on its connection, is done: their tokens come back. Returns how many they are.
#[inline(never)]
fn retire(
    endpoints: &mut [Endpoint],
    posted: &mut Posted,
    bounce: &mut Bounce,
    id: WrId,
    batch: &mut Batch,
    overflow: &mut VecDeque<Late>,
) -> u32 {
    let to = id.endpoint();
    let endpoint = endpoints.get_mut(to.index() as usize);
    let Some(connection) = endpoint.and_then(|endpoint| endpoint.connection.as_deref_mut()) else { return 0 };
    let Some(done) = connection.retire(id.low()) else { return 0 };
    if !connection.bounced.is_empty() {
        bounce.take_back(&mut connection.bounced, id.low());
    }
    while let Some((_, token)) = posted.pop_through(&mut connection.list, id.low()) {
        if let Err(event) = batch.push(Event::Completed { token, to, outcome: Ok(()) }) {
            overflow.push_back(event.into());
        }
    }
    done
}
