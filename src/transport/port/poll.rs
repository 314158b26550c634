// SPDX-License-Identifier: MIT OR Apache-2.0
//! Polls a port: takes completions in batches and reports them. Called by the plugin's progress. Grade: hot: an empty
//! poll is a countdown, one call into the provider and two counts. When the countdown ends, sooner if polls find
//! nothing, it also checks connections (`connect.rs`). It handles rare completions after the batch. Threads: the
//! port's. Tests: `port/tests`, and `hw-tests`.

use super::{EMPTY_POLL, Exceptional, Port};
use crate::counters::add;
use crate::transport::adapter::{Adapter, CompletionQueue as _};
use crate::transport::completion::{Batch, Completion, Failed, ReceivedMessage, TakesMessages, TakesNone, Token};
use crate::transport::connections::failure::Cause;
use crate::transport::watch;
use crate::transport::work_request::{EndpointId, Immediate, WrId};
use ibex_ffi::verbs::{Status, WorkCompletion};
use std::sync::atomic::{AtomicU64, Ordering};

/// The result of a poll that may consume messages in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Polled {
    /// Number of messages that the handler consumed.
    pub taken: usize,
    /// Number of completions in the batch.
    pub reported: usize,
}

impl<A: Adapter> Port<A> {
    /// Releases the previous content of the batch, polls at most a batch of completions, and returns their number.
    #[inline(always)]
    pub fn poll(&mut self, batch: &mut Batch) -> usize {
        self.release(batch);
        self.poll_with::<false>(batch, TakesNone).reported
    }

    /// Like [`Self::poll`], but `takes` may consume messages and successful requests, which are then not reported; the
    /// slot of a consumed message is released at once. `takes` gets all successful requests, and the messages in order,
    /// but none after one that is to be reported, so that no message overtakes another.
    #[inline(always)]
    pub fn poll_direct(&mut self, batch: &mut Batch, takes: impl TakesMessages) -> Polled {
        if !batch.completions().is_empty() || self.rx.is_due() {
            self.release(batch);
        }
        self.poll_with::<false>(batch, takes)
    }

    /// Like [`Self::poll_direct`], while a tool listens; with the adapter's stamps ([`Batch::stamp`]) if it wants them.
    #[cold]
    #[inline(never)]
    pub fn poll_direct_watched(&mut self, batch: &mut Batch, takes: impl TakesMessages) -> Polled {
        self.release(batch);
        if self.wants_stamps() { self.poll_with::<true>(batch, takes) } else { self.poll_with::<false>(batch, takes) }
    }

    fn wants_stamps(&self) -> bool {
        self.source.is_some() && watch::wants_stamps()
    }

    #[inline(always)]
    fn poll_with<const STAMPED: bool>(&mut self, batch: &mut Batch, mut takes: impl TakesMessages) -> Polled {
        if self.count_down() && self.is_busy() {
            takes.is_busy();
        }
        let mut count = 0;
        let is_first = self.undelivered.is_empty();
        if is_first || self.deliver_held(batch) {
            count = self.take::<STAMPED>(batch, takes, is_first);
        }
        if self.tx.take_freed() && self.tx.peers_waiting() > 0 {
            self.work_backlog();
            self.undelivered.drain(batch);
        }
        Polled { taken: count, reported: batch.completions().len() }
    }

    /// Checks connections when the countdown of polls ends; an empty poll counts as [`EMPTY_POLL`]. True if it has.
    #[inline]
    fn count_down(&mut self) -> bool {
        self.countdown -= 1;
        let is_due = self.countdown == 0;
        if is_due {
            self.countdown = self.look_after_connections();
        }
        is_due
    }

    /// Whether most polls since the last check have found something.
    #[cold]
    fn is_busy(&mut self) -> bool {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let now = [count(&self.counters.polls), count(&self.counters.empty_polls)];
        let [polls, empty] = std::mem::replace(&mut self.polls_at_look, now);
        now[1] - empty < (now[0] - polls) / 2
    }

    /// Gives back the receive slots of a batch whose messages have been handled, and empties it.
    #[inline]
    pub fn release(&mut self, batch: &mut Batch) {
        for completion in batch.completions() {
            if let Completion::Message { slot, .. } = completion {
                self.rx.release(*slot);
            }
        }
        if self.rx.is_due() {
            self.post_receives();
        }
        batch.clear();
    }

    /// Whether the adapter has so few receives left that slots should be released without waiting for the next poll.
    #[inline]
    pub fn is_short_of_receives(&self) -> bool {
        self.rx.is_short()
    }

    #[inline]
    fn post_receives(&mut self) {
        if let Err(error) = self.rx.post() {
            self.lose(&error, "posting to the shared receive queue");
        }
    }

    /// Copies the first `len` bytes of a received message, for a caller that may not use its address. Empty if the slot
    /// is smaller. Called before [`Port::release`].
    pub fn copy_received(&self, slot: u32, len: u32) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        if self.rx.copy(slot, &mut bytes) { bytes } else { Vec::new() }
    }

    /// Returns the sender of a message that came by the local queue pair `qp_num`. `None` unless the claimed endpoint
    /// has that queue pair, or had it and it is not destroyed.
    pub fn sender(&self, immediate: Immediate, qp_num: u32) -> Option<EndpointId> {
        let named = immediate.endpoint();
        let is_in_use = self.connections.get(named).is_some_and(|connection| connection.number() == qp_num);
        (is_in_use || self.closing.has(named, qp_num)).then_some(named)
    }

    /// Takes completions while they cannot be reported: they wait for the next polls, except successful requests whose
    /// token `done` consumes.
    #[cold]
    pub(super) fn take_ahead(&mut self, done: &mut dyn FnMut(Token) -> bool) {
        let _ = self.count_down();
        let mut held = std::mem::take(&mut self.undelivered);
        let mut batch = Batch::default();
        loop {
            batch.clear();
            if self.wants_stamps() {
                self.take::<true>(&mut batch, TakesNone, false);
            } else {
                self.take::<false>(&mut batch, TakesNone, false);
            }
            let is_last = batch.completions().is_empty();
            held.hold(&mut batch, &mut *done);
            held.append(&mut self.undelivered);
            if is_last {
                break;
            }
        }
        self.undelivered = held;
    }

    /// Takes a batch of completions from the adapter. Returns the number of messages that `takes` consumed. It gets
    /// messages only if `is_asked`: no earlier completion waits to be reported.
    #[inline(always)]
    fn take<const STAMPED: bool>(
        &mut self,
        batch: &mut Batch,
        mut takes: impl TakesMessages,
        mut is_asked: bool,
    ) -> usize {
        let mut count = 0;
        let Port { cq, counters, rx, tx, connections, handshakes, exceptional, undelivered, .. } = self;
        let counters = &**counters;
        add(&counters.polls, 1);
        let polled = if STAMPED { cq.poll_stamped() } else { cq.poll().map(|completions| (completions, &[][..])) };
        let mut mark = undelivered.mark(batch);
        let (completions, stamps) = match polled {
            Ok(([], _)) => {
                add(&counters.empty_polls, 1);
                self.countdown = self.countdown.saturating_sub(EMPTY_POLL - 1).max(1);
                return 0;
            }
            Ok(completions) => completions,
            Err(error) => {
                self.lose(&error, "polling the completion queue");
                return 0;
            }
        };
        add(&counters.completions, completions.len() as u64);
        let mut stamps = stamps.iter();
        for completion in completions {
            'one: {
                let id = WrId(completion.id());
                if !completion.succeeded() {
                    exceptional.push(Exceptional::Failed(*completion));
                    break 'one;
                }
                if id.is_send() {
                    match connections.get_mut(id.endpoint()) {
                        Some(connection) => {
                            tx.retire(&mut connection.queue, id, (batch, undelivered), takes.requests());
                        }
                        None => tx.is_late(id),
                    }
                    break 'one;
                }
                let slot = id.low();
                let addr = rx.filled(slot, counters);
                let (Some(immediate), Some(addr)) = (completion.immediate().map(Immediate), addr) else {
                    exceptional.push(Exceptional::Malformed { slot });
                    break 'one;
                };
                let len = completion.len();
                add(&counters.received, 1);
                add(&counters.received_bytes, u64::from(len));
                let qp_num = completion.qp_num();
                if handshakes.is_any_active() {
                    exceptional.push(Exceptional::Early { immediate, qp_num });
                }
                let message = ReceivedMessage::new(addr, len);
                if is_asked && takes.takes(&message, immediate) {
                    rx.release(slot);
                    count += 1;
                } else {
                    is_asked = false;
                    undelivered.deliver(batch, Completion::Message { message, slot, immediate, qp_num });
                }
            }
            if STAMPED && let Some(stamp) = stamps.next() {
                undelivered.stamp_after(&mut mark, batch, *stamp);
            }
        }
        if !exceptional.is_empty() {
            self.take_exceptional(batch);
        }
        count
    }

    #[cold]
    fn take_exceptional(&mut self, batch: &mut Batch) {
        for completion in std::mem::take(&mut self.exceptional) {
            match completion {
                Exceptional::Failed(completion) if WrId(completion.id()).is_send() => self.failed_send(&completion),
                Exceptional::Failed(completion) => self.failed_receive(&completion),
                Exceptional::Malformed { slot } => {
                    add(&self.counters.malformed, 1);
                    self.rx.release(slot);
                    self.post_receives();
                }
                Exceptional::Early { immediate, qp_num } => {
                    self.confirmed_by_data(immediate.endpoint(), qp_num);
                }
            }
        }
        self.undelivered.drain(batch);
    }

    /// Moves the waiting completions to the batch. Returns whether that leaves room for a poll's completions.
    #[cold]
    fn deliver_held(&mut self, batch: &mut Batch) -> bool {
        self.undelivered.drain(batch);
        batch.room() >= self.cq.batch()
    }

    /// Handles a failed request: every request before it on its connection succeeded, and the connection fails.
    #[cold]
    fn failed_send(&mut self, completion: &WorkCompletion) {
        let (status, vendor) = completion.status();
        let id = WrId(completion.id());
        if id.is_end_marker() {
            return self.flushed(id.low());
        }
        let to = id.endpoint();
        let known = self.connections.get_mut(to);
        let retired = known.and_then(|of| self.tx.retire_failed(&mut of.queue, id, &mut self.undelivered));
        let Some(token) = retired else { return self.failed_late(id, status) };
        // The reason goes before the failed request: a caller may end the job at its first failed request.
        let is_first = self.give_up(to, Cause::Completion { status, vendor });
        if token.0 != 0 {
            let outcome = Err(Failed { status, posted: true });
            self.undelivered.push(Completion::Request { token, to, outcome });
        }
        if is_first {
            self.fail_waiting(to);
        }
    }

    /// Handles a failed receive: a message larger than a slot, or a flushed receive of a failed queue pair.
    #[cold]
    fn failed_receive(&mut self, completion: &WorkCompletion) {
        let slot = WrId(completion.id()).low();
        self.rx.filled(slot, &self.counters);
        self.rx.release(slot);
        self.post_receives();
        let (status, vendor) = completion.status();
        let peer = self.connections.of_queue_pair(completion.qp_num());
        if let Some(peer) = peer.filter(|_| status != Status::FLUSHED) {
            self.fail(peer, Cause::Completion { status, vendor });
        }
    }
}
