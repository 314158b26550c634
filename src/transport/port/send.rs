// SPDX-License-Identifier: MIT OR Apache-2.0
//! Posts sends, puts, gets and atomics of a port, or queues them in order. Called by the plugin. Grade: hot with an
//! open connection and room (one check of the endpoint, one post), else pending: the port queues puts, gets and atomics
//! (`waiting.rs`); a send returns [`Sent::Busy`], because its caller may need to know when the adapter has it, and the
//! port queues it on request. Threads: the port's. Sizes in bytes. Tests: `port/tests`, and `hw-tests`.

use super::Port;
use crate::counters::add;
use crate::transport::adapter::{Adapter, QueuePair, Work};
use crate::transport::completion::Token;
use crate::transport::connections::failure::Cause;
use crate::transport::tx::request::{Operation, Request};
use crate::transport::tx::send_queue::SendQueue;
use crate::transport::tx::{Attempt, Post, Signal};
use crate::transport::work_request::EndpointId;
use ibex_ffi::verbs::{InlineSpan, LocalSpan, PostError, RemoteSpan, Wr};

/// Nothing was queued: the connection to this peer has failed, or there is no such endpoint. The failure is reported
/// before or soon after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused;

/// The result of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The adapter has the message.
    Posted,
    /// It was not posted or queued: there is no connection yet, no room, or other requests wait. [`Port::queue_send`]
    /// and [`Port::queue_bytes`] queue it; [`Port::queue_turn`] reports when the caller may post it.
    Busy,
}

struct InlineMessage<'a> {
    header: InlineSpan<'a>,
    payload: InlineSpan<'a>,
    tag: u8,
}

impl<Q: QueuePair> Post<Q> for InlineMessage<'_> {
    #[inline(always)]
    fn post(self, queue: &mut SendQueue<Q>, wr: Wr) -> Result<(), PostError> {
        let InlineMessage { header, payload, tag } = self;
        queue.post(wr, Work::SendInline { header, payload, immediate: queue.immediate(tag) })
    }
}

struct Message<'a> {
    spans: &'a [LocalSpan],
    tag: u8,
}

impl<Q: QueuePair> Post<Q> for Message<'_> {
    #[inline(always)]
    fn post(self, queue: &mut SendQueue<Q>, wr: Wr) -> Result<(), PostError> {
        queue.post(wr, Work::Send { spans: self.spans, immediate: queue.immediate(self.tag) })
    }
}

impl<A: Adapter> Port<A> {
    /// Sends `header` and `payload` as one inline message of at most [`crate::transport::Attributes::max_inline`]
    /// bytes; a longer one gets [`Sent::Busy`].
    ///
    /// # Errors
    /// [`Refused`] if the connection has failed.
    #[inline(always)]
    pub fn send_inline(
        &mut self,
        to: EndpointId,
        tag: u8,
        header: InlineSpan<'_>,
        payload: InlineSpan<'_>,
    ) -> Result<Sent, Refused> {
        let bytes = header.len() + payload.len();
        if bytes > self.tx.max_inline() {
            return Ok(Sent::Busy);
        }
        let attempt = self.attempt(to, (Signal::Sometimes, Token(0)), InlineMessage { header, payload, tag });
        if matches!(attempt, Attempt::Posted) {
            let counters = &*self.counters;
            add(&counters.inline_sent, 1);
            add(&counters.inline_bytes, bytes as u64);
            return Ok(Sent::Posted);
        }
        self.not_posted(to, &attempt).map(|()| Sent::Busy)
    }

    /// Sends one message gathered from one or two spans. Once posted they are the adapter's until `token` comes back:
    /// with `prompt` as soon as the peer's adapter has the message, otherwise later, together with other requests.
    ///
    /// # Errors
    /// [`Refused`] if the connection has failed; then `token` does not come back.
    #[inline]
    pub fn send(
        &mut self,
        to: EndpointId,
        tag: u8,
        spans: &[LocalSpan],
        token: Token,
        prompt: bool,
    ) -> Result<Sent, Refused> {
        let signal = self.tx.signal_of_copy(prompt);
        let attempt = self.attempt(to, (signal, token), Message { spans, tag });
        if matches!(attempt, Attempt::Posted) {
            self.count_send(spans);
            return Ok(Sent::Posted);
        }
        self.not_posted(to, &attempt).map(|()| Sent::Busy)
    }

    #[inline]
    pub(super) fn count_send(&self, spans: &[LocalSpan]) {
        let (count, volume, bytes) = if let [span] = spans {
            (&self.counters.copy_sent, &self.counters.copy_bytes, span.len().into())
        } else {
            let bytes = spans.iter().map(|span| u64::from(span.len())).sum();
            (&self.counters.zero_copy_sent, &self.counters.zero_copy_bytes, bytes)
        };
        add(count, 1);
        add(volume, bytes);
    }

    /// Whether a request to this peer would be posted now: it is connected, no request waits, and there is room.
    #[inline]
    pub fn has_room(&self, to: EndpointId) -> bool {
        self.connections.get(to).is_some_and(|connection| self.tx.has_room(&connection.queue))
    }

    /// Writes `local` to the peer's memory. `token` comes back when the bytes are there.
    ///
    /// # Errors
    /// [`Refused`] if the connection has failed; then `token` does not come back.
    #[inline]
    pub fn put(&mut self, to: EndpointId, local: LocalSpan, remote: RemoteSpan, token: Token) -> Result<(), Refused> {
        add(&self.counters.put, 1);
        add(&self.counters.put_bytes, u64::from(local.len()));
        self.submit(to, token, Work::Write { local, remote })
    }

    /// Writes `bytes`, at most [`crate::transport::Attributes::max_inline`], to the peer's memory. The caller may reuse
    /// them at once. `token` comes back when they are there.
    ///
    /// # Errors
    /// [`Refused`] if there are more bytes, or the connection has failed; then `token` does not come back.
    #[inline]
    pub fn put_inline(
        &mut self,
        to: EndpointId,
        bytes: InlineSpan<'_>,
        remote: RemoteSpan,
        token: Token,
    ) -> Result<(), Refused> {
        if bytes.len() > self.tx.max_inline() {
            return Err(Refused);
        }
        add(&self.counters.put, 1);
        add(&self.counters.put_bytes, bytes.len() as u64);
        let work = Work::WriteInline { bytes, remote };
        self.submit_as(to, token, work, || Operation::PutInline { bytes: bytes.copied(), remote })
    }

    /// Reads the peer's memory into `local`. `token` comes back when the bytes are there.
    ///
    /// # Errors
    /// [`Refused`] if the connection has failed; then `token` does not come back.
    #[inline]
    pub fn get(&mut self, to: EndpointId, local: LocalSpan, remote: RemoteSpan, token: Token) -> Result<(), Refused> {
        add(&self.counters.get, 1);
        add(&self.counters.get_bytes, u64::from(local.len()));
        self.submit(to, token, Work::Read { local, remote })
    }

    /// Adds `operand` to the 64 bits at `remote`; `local` (8 bytes) gets the former value. `token` comes back then.
    ///
    /// # Errors
    /// [`Refused`] if the connection has failed; then `token` does not come back.
    #[inline]
    pub fn fetch_add(
        &mut self,
        to: EndpointId,
        local: LocalSpan,
        remote: RemoteSpan,
        operand: u64,
        token: Token,
    ) -> Result<(), Refused> {
        add(&self.counters.atomic, 1);
        self.submit(to, token, Work::FetchAdd { local, remote, operand })
    }

    /// Sets the 64 bits at `remote` to `swap` if they are `compare`; `local` (8 bytes) gets the former value. `token`
    /// comes back then.
    ///
    /// # Errors
    /// [`Refused`] if the connection has failed; then `token` does not come back.
    #[inline]
    pub fn compare_swap(
        &mut self,
        to: EndpointId,
        local: LocalSpan,
        remote: RemoteSpan,
        (compare, swap): (u64, u64),
        token: Token,
    ) -> Result<(), Refused> {
        add(&self.counters.atomic, 1);
        self.submit(to, token, Work::CompareSwap { local, remote, compare, swap })
    }

    #[inline]
    fn submit(&mut self, to: EndpointId, token: Token, work: Work<'static>) -> Result<(), Refused> {
        self.submit_as(to, token, work, || Operation::Other(work))
    }

    /// Posts a request, or queues it as `operation`.
    #[inline]
    fn submit_as(
        &mut self,
        to: EndpointId,
        token: Token,
        work: Work<'_>,
        operation: impl FnOnce() -> Operation,
    ) -> Result<(), Refused> {
        let attempt = self.attempt(to, (Signal::Always, token), work);
        if matches!(attempt, Attempt::Posted) {
            return Ok(());
        }
        self.not_posted(to, &attempt)?;
        self.queue(to, Request { token, operation: operation() })?;
        // A request to a diverted peer does not wait for room: the backlog can post it at once.
        self.tx.expect_room();
        Ok(())
    }

    /// Posts through `post` if the connection has room, and notes the token. The hot path of every operation.
    #[inline(always)]
    fn attempt(&mut self, to: EndpointId, asked: (Signal, Token), post: impl Post<A::QueuePair>) -> Attempt {
        let Some(connection) = self.connections.get_mut(to) else { return Attempt::Wait };
        self.tx.post(&mut connection.queue, to, asked, &self.counters, post)
    }

    /// Decides about a request that was not posted: it may wait, or its connection fails.
    #[cold]
    #[inline(never)]
    fn not_posted(&mut self, to: EndpointId, attempt: &Attempt) -> Result<(), Refused> {
        match attempt {
            Attempt::Refused(error) if !self.may_find_room(to, *error) => {
                self.fail(to, Cause::Post { errno: error.0 });
                Err(Refused)
            }
            _ => self.check(to),
        }
    }

    /// Whether a completion will make room for a request that the adapter refused.
    #[cold]
    pub(super) fn may_find_room(&mut self, to: EndpointId, error: PostError) -> bool {
        let now = self.adapter.now();
        let connection = self.connections.get_mut(to);
        connection.is_some_and(|connection| error.is_full() && connection.queue.may_find_room(now))
    }

    #[cold]
    pub(super) fn check(&self, to: EndpointId) -> Result<(), Refused> {
        if self.connections.takes_requests(to) { Ok(()) } else { Err(Refused) }
    }
}
