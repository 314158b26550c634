// SPDX-License-Identifier: MIT OR Apache-2.0
//! The send side of a port: sends, puts, gets and atomics are posted, or wait in order until they can be.
//!
//! Called by the plugin. Path grades: an open connection with room is *hot* (one check of the endpoint, one post). What cannot
//! be posted now is *pending*: puts, gets and atomics are queued (`backlog.rs`); a send says so, because who sends may have to
//! know when the adapter has it, and is queued when its caller asks for that. One thread at a time (`&mut Port`). Sizes in
//! bytes. Tests: the device tests in `hw-tests`.

use crate::counters::add;
use crate::endpoint::{Connection, Operation, Request};
use crate::event::{EndpointId, Token, WrId};
use crate::failure::Cause;
use crate::port::Port;
use ibex_ffi::verbs::{InlineSpan, LocalSpan, PostError, RemoteSpan, Wr};

/// The connection to this peer has failed, or there is no such endpoint: nothing was queued. Its failure has been, or is
/// about to be, reported as an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused;

/// What became of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The adapter has it.
    Posted,
    /// It cannot be posted now, and nothing was kept: there is no connection yet, no room, or others wait before it.
    /// [`Port::queue_send`] and [`Port::queue_bytes`] let it wait.
    Busy,
}

/// What became of an attempt to post.
pub(crate) enum Attempt {
    Posted,
    /// No room, or not connected: queue it.
    Wait,
    /// The adapter refused it: the connection is lost.
    Broken(PostError),
}

/// Whether a request asks for a completion.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Always,
    /// When enough others have not.
    Sometimes,
}

impl Port {
    /// Sends `header` and `payload` as one message, inside the work request. Together at most
    /// [`crate::port::Attributes::max_inline`] bytes; more is answered with [`Sent::Busy`].
    ///
    /// # Errors
    /// [`Refused`] when the connection has failed.
    #[inline]
    pub fn send_inline(
        &mut self,
        to: EndpointId,
        tag: u8,
        header: InlineSpan<'_>,
        payload: InlineSpan<'_>,
    ) -> Result<Sent, Refused> {
        let bytes = header.len() + payload.len();
        if bytes > self.attributes.max_inline as usize {
            return Ok(Sent::Busy);
        }
        let post = |c: &mut Connection, wr| c.qp.send_inline(wr, header, payload, c.immediate(tag));
        match self.attempt(to, Signal::Sometimes, Token(0), post) {
            Attempt::Posted => {
                add(&self.counters.inline_sent, 1);
                add(&self.counters.inline_bytes, bytes as u64);
                Ok(Sent::Posted)
            }
            Attempt::Wait => self.check(to).map(|()| Sent::Busy),
            Attempt::Broken(error) => self.broken(to, error).map(|()| Sent::Busy),
        }
    }

    /// Sends one message gathered from one or two spans. Where it is posted they are the adapter's until `token` comes back. With
    /// `prompt`, it comes back as soon as the peer's adapter has the message; without, at some later time, when others are
    /// completed too.
    ///
    /// # Errors
    /// [`Refused`] when the connection has failed; `token` does not come back then.
    #[inline]
    pub fn send(
        &mut self,
        to: EndpointId,
        tag: u8,
        spans: &[LocalSpan],
        token: Token,
        prompt: bool,
    ) -> Result<Sent, Refused> {
        let signal = if prompt || self.prompt_copies { Signal::Always } else { Signal::Sometimes };
        match self.attempt(to, signal, token, |c, wr| c.qp.send(wr, spans, c.immediate(tag))) {
            Attempt::Posted => {
                self.count_send(spans);
                Ok(Sent::Posted)
            }
            Attempt::Wait => self.check(to).map(|()| Sent::Busy),
            Attempt::Broken(error) => self.broken(to, error).map(|()| Sent::Busy),
        }
    }

    #[inline]
    pub(crate) fn count_send(&self, spans: &[LocalSpan]) {
        let (count, volume) = match spans {
            [_] => (&self.counters.copy_sent, &self.counters.copy_bytes),
            _ => (&self.counters.zero_copy_sent, &self.counters.zero_copy_bytes),
        };
        add(count, 1);
        add(volume, spans.iter().map(|span| u64::from(span.len())).sum());
    }

    /// Whether a request to this peer would be posted now: it is connected, nothing waits, and there is room.
    #[inline]
    #[must_use]
    pub fn has_room(&self, to: EndpointId) -> bool {
        self.credits > 0 && self.connection(to).is_some_and(|connection| connection.posted != connection.limit)
    }

    /// Writes `local` to the peer's memory. `token` comes back when it is there.
    ///
    /// # Errors
    /// [`Refused`] when the connection has failed; `token` does not come back then.
    #[inline]
    pub fn put(&mut self, to: EndpointId, local: LocalSpan, remote: RemoteSpan, token: Token) -> Result<(), Refused> {
        add(&self.counters.put, 1);
        add(&self.counters.put_bytes, u64::from(local.len()));
        self.submit(to, Request { token, operation: Operation::Put { local, remote } })
    }

    /// Writes `bytes`, at most [`crate::port::Attributes::max_inline`], to the peer's memory; they may be reused at once.
    /// `token` comes back when they are there.
    ///
    /// # Errors
    /// [`Refused`] when there are more bytes than that, or the connection has failed; `token` does not come back then.
    #[inline]
    pub fn put_inline(
        &mut self,
        to: EndpointId,
        bytes: InlineSpan<'_>,
        remote: RemoteSpan,
        token: Token,
    ) -> Result<(), Refused> {
        if bytes.len() > self.attributes.max_inline as usize {
            return Err(Refused);
        }
        add(&self.counters.put, 1);
        add(&self.counters.put_bytes, bytes.len() as u64);
        match self.attempt(to, Signal::Always, token, |c, wr| c.qp.write_inline(wr, bytes, remote)) {
            Attempt::Posted => Ok(()),
            Attempt::Wait => {
                let operation = Operation::PutInline { bytes: bytes.copied(), remote };
                self.queue(to, Request { token, operation })
            }
            Attempt::Broken(error) => self.broken(to, error),
        }
    }

    /// Reads the peer's memory into `local`. `token` comes back when it is there.
    ///
    /// # Errors
    /// [`Refused`] when the connection has failed; `token` does not come back then.
    #[inline]
    pub fn get(&mut self, to: EndpointId, local: LocalSpan, remote: RemoteSpan, token: Token) -> Result<(), Refused> {
        add(&self.counters.get, 1);
        add(&self.counters.get_bytes, u64::from(local.len()));
        self.submit(to, Request { token, operation: Operation::Get { local, remote } })
    }

    /// Adds `operand` to the 64 bits at `remote`; what they were comes to `local` (8 bytes). `token` comes back then.
    ///
    /// # Errors
    /// [`Refused`] when the connection has failed; `token` does not come back then.
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
        self.submit(to, Request { token, operation: Operation::FetchAdd { local, remote, operand } })
    }

    /// Makes the 64 bits at `remote` `swap` if they are `compare`; what they were comes to `local` (8 bytes). `token` comes
    /// back then.
    ///
    /// # Errors
    /// [`Refused`] when the connection has failed; `token` does not come back then.
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
        self.submit(to, Request { token, operation: Operation::CompareSwap { local, remote, compare, swap } })
    }

    /// Posts a request, or queues it.
    #[inline]
    fn submit(&mut self, to: EndpointId, request: Request) -> Result<(), Refused> {
        match self.attempt_request(to, &request) {
            Attempt::Posted => Ok(()),
            Attempt::Wait => self.queue(to, request),
            Attempt::Broken(error) => self.broken(to, error),
        }
    }

    /// Posts through `post` if the connection has room, and notes `token`. The hot path of every operation.
    #[inline]
    pub(crate) fn attempt(
        &mut self,
        to: EndpointId,
        signal: Signal,
        token: Token,
        post: impl FnOnce(&mut Connection, Wr) -> Result<(), PostError>,
    ) -> Attempt {
        let endpoint = self.endpoints.get_mut(to.index() as usize);
        let Some(connection) = endpoint.and_then(|endpoint| endpoint.connection.as_deref_mut()) else {
            return Attempt::Wait;
        };
        let sequence = connection.posted;
        if sequence == connection.limit || self.credits == 0 {
            return Attempt::Wait;
        }
        // When credits run low all requests ask for a completion, so that credits always come back.
        let signalled = signal == Signal::Always
            || connection.unsignalled() + 1 >= self.signal_interval
            || self.credits < self.scarce_credits;
        match post(connection, Wr { id: WrId::send(to, sequence).0, signalled }) {
            Ok(()) => {
                connection.posted = sequence.wrapping_add(1);
                self.credits -= 1;
                if token.0 != 0 {
                    self.posted.push(&mut connection.list, sequence, token);
                }
                add(&self.counters.posted, 1);
                if signalled {
                    connection.signalled = connection.posted;
                    add(&self.counters.signalled, 1);
                }
                Attempt::Posted
            }
            Err(error) => self.not_posted(to, error),
        }
    }

    /// What becomes of a request that the adapter did not take: it waits where a completion will make room.
    #[cold]
    #[inline(never)]
    fn not_posted(&mut self, to: EndpointId, error: PostError) -> Attempt {
        let now = self.connector.now();
        let may_find_room = |connection: &mut Connection| error.is_full() && connection.may_find_room(now);
        if self.connection_mut(to).is_some_and(may_find_room) { Attempt::Wait } else { Attempt::Broken(error) }
    }

    /// Whether requests to this peer may still be taken.
    #[cold]
    pub(crate) fn check(&self, to: EndpointId) -> Result<(), Refused> {
        match self.endpoints.get(to.index() as usize) {
            Some(endpoint) if !endpoint.forgotten && endpoint.failure.is_none() => Ok(()),
            _ => Err(Refused),
        }
    }

    #[cold]
    fn broken(&mut self, to: EndpointId, error: PostError) -> Result<(), Refused> {
        self.fail(to, Cause::Post { errno: error.0 });
        Err(Refused)
    }

    #[inline]
    pub(crate) fn attempt_request(&mut self, to: EndpointId, request: &Request) -> Attempt {
        let token = request.token;
        match &request.operation {
            Operation::Send { tag, spans, count } => {
                let spans = &spans[..usize::from(*count)];
                self.attempt(to, Signal::Always, token, |c, wr| c.qp.send(wr, spans, c.immediate(*tag)))
            }
            Operation::SendBytes { tag, bytes, length } => {
                self.attempt_bytes(to, *tag, &bytes[..*length as usize], token)
            }
            Operation::Put { local, remote } => {
                self.attempt(to, Signal::Always, token, |c, wr| c.qp.write(wr, *local, *remote))
            }
            Operation::PutInline { bytes, remote } => {
                self.attempt(to, Signal::Always, token, |c, wr| c.qp.write_inline(wr, (&**bytes).into(), *remote))
            }
            Operation::Get { local, remote } => {
                self.attempt(to, Signal::Always, token, |c, wr| c.qp.read(wr, *local, *remote))
            }
            Operation::FetchAdd { local, remote, operand } => {
                self.attempt(to, Signal::Always, token, |c, wr| c.qp.fetch_add(wr, *local, *remote, *operand))
            }
            Operation::CompareSwap { local, remote, compare, swap } => {
                self.attempt(to, Signal::Always, token, |c, wr| {
                    c.qp.compare_swap(wr, *local, *remote, (*compare, *swap))
                })
            }
            Operation::Nothing => {
                // A write of no bytes needs no key at either end, and completes in its turn.
                let nowhere = RemoteSpan { addr: 0, rkey: 0 };
                self.attempt(to, Signal::Always, token, |c, wr| c.qp.write_inline(wr, InlineSpan::EMPTY, nowhere))
            }
        }
    }
}
