// SPDX-License-Identifier: MIT OR Apache-2.0
//! The send side of a port: sends, puts, gets and atomics are posted, or wait in order until they can be.
//!
//! Called by the plugin. Path grades: an open connection with room is *hot* (one check of the endpoint, one post); anything
//! else is *pending*: queued per endpoint, in order, without loss, and taken up again by `poll.rs` when completions give room.
//! One thread at a time (`&mut Port`). Sizes in bytes. Tests: the device tests in `hw-tests`.

use crate::counters::add;
use crate::endpoint::{Connection, Operation, Request, State};
use crate::event::{EndpointId, Event, Failed, Token, WrId};
use crate::events;
use crate::failure::Cause;
use crate::port::Port;
use ibex_ffi::verbs::{LocalSpan, PostError, RemoteSpan, Status, Wr};

/// The connection to this peer has failed, or there is no such endpoint: nothing was queued. Its failure has been, or is
/// about to be, reported as an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused;

/// What became of an inline send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inline {
    /// It is on its way; header and payload may be reused.
    Posted,
    /// It cannot be posted now; nothing was kept. Copy it and use [`Port::send`], which queues.
    Busy,
}

/// What became of an attempt to post.
enum Attempt {
    Posted,
    /// No room, or not connected: queue it.
    Wait,
    /// The adapter refused it: the connection is lost.
    Broken(PostError),
}

/// Whether a request asks for a completion.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Signal {
    Always,
    /// When enough others have not.
    Sometimes,
}

impl Port {
    /// Sends `header` and `payload` as one message, inside the work request. Together at most
    /// [`crate::port::Attributes::max_inline`] bytes; more is answered with [`Inline::Busy`].
    ///
    /// # Errors
    /// [`Refused`] when the connection has failed.
    #[inline]
    pub fn send_inline(&mut self, to: EndpointId, tag: u8, header: &[u8], payload: &[u8]) -> Result<Inline, Refused> {
        let bytes = header.len() + payload.len();
        if bytes > self.attributes.max_inline as usize {
            return Ok(Inline::Busy);
        }
        let post = |c: &mut Connection, wr| c.qp.send_inline(wr, header, payload, c.immediate(tag));
        match self.attempt(to, Signal::Sometimes, Token(0), post) {
            Attempt::Posted => {
                add(&self.counters.inline_sent, 1);
                add(&self.counters.inline_bytes, bytes as u64);
                Ok(Inline::Posted)
            }
            Attempt::Wait => self.check(to).map(|()| Inline::Busy),
            Attempt::Broken(error) => self.broken(to, error).map(|()| Inline::Busy),
        }
    }

    /// Sends one message gathered from one or two spans. They are the adapter's until `token` comes back. With `prompt`, it
    /// comes back as soon as the peer's adapter has the message; without, at some later time, when others are completed too.
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
    ) -> Result<(), Refused> {
        let bytes: u64 = spans.iter().map(|span| u64::from(span.len())).sum();
        let (count, volume) = match spans {
            [_] => (&self.counters.copy_sent, &self.counters.copy_bytes),
            _ => (&self.counters.zero_copy_sent, &self.counters.zero_copy_bytes),
        };
        add(count, 1);
        add(volume, bytes);
        let signal = self.signal_of_send(prompt);
        match self.attempt(to, signal, token, |c, wr| c.qp.send(wr, spans, c.immediate(tag))) {
            Attempt::Posted => Ok(()),
            Attempt::Wait => {
                let first = spans.first().copied().unwrap_or(LocalSpan::EMPTY);
                let second = spans.get(1).copied().unwrap_or(LocalSpan::EMPTY);
                let count = spans.len().min(2) as u8;
                let operation = Operation::Send { tag, spans: [first, second], count, prompt };
                self.queue(to, Request { token, operation })
            }
            Attempt::Broken(error) => self.broken(to, error),
        }
    }

    #[inline]
    fn signal_of_send(&self, prompt: bool) -> Signal {
        if prompt || self.prompt_copies { Signal::Always } else { Signal::Sometimes }
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
        bytes: &[u8],
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
                let operation = Operation::PutInline { bytes: bytes.into(), remote };
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

    /// For a caller that has run out of buffers, and may not come back to poll before it has some: moves connections on, posts
    /// what waits, and asks every connection with requests of which nobody asked a completion for one, so that their tokens come
    /// back. What happens meanwhile is told by the next poll, in order. Pending grade.
    pub fn reclaim(&mut self) {
        self.take_ahead();
        for index in 0..self.endpoints.len() as u32 {
            let to = EndpointId::from_index(index);
            let wanting = self.connection(to).is_some_and(|c| c.state == State::Ready && c.unsignalled() > 0);
            if wanting {
                self.post_nothing(to);
            }
        }
        self.work_backlog();
    }

    /// Queues a request that moves no byte, for its completion. The backlog is to be worked after it.
    pub(crate) fn post_nothing(&mut self, to: EndpointId) {
        // Refused only where the connection has just failed, and then every token comes back anyway.
        let _ = self.queue(to, Request { token: Token(0), operation: Operation::Nothing });
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
    fn attempt(
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
            Err(error) if error.is_full() => Attempt::Wait,
            Err(error) => Attempt::Broken(error),
        }
    }

    /// Puts a request behind all that waits for this peer, and begins to connect where nothing does yet.
    #[cold]
    fn queue(&mut self, to: EndpointId, request: Request) -> Result<(), Refused> {
        self.check(to)?;
        if self.connection(to).is_none() {
            self.begin_connection(to);
        }
        self.check(to)?;
        let Some(connection) = self.connection_mut(to) else { return Err(Refused) };
        let token = request.token;
        connection.pending.push_back(request);
        connection.set_limit();
        if events::is_any_active() {
            self.watch_queued(to, token);
        }
        add(&self.counters.queued, 1);
        add(&self.counters.waiting, 1);
        self.enlist(to);
        Ok(())
    }

    /// Whether requests to this peer may still be taken.
    #[cold]
    fn check(&self, to: EndpointId) -> Result<(), Refused> {
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

    /// Notes that the peer's waiting requests shall be looked at.
    pub(crate) fn enlist(&mut self, to: EndpointId) {
        let Some(connection) = self.connection_mut(to) else { return };
        if !connection.in_backlog {
            connection.in_backlog = true;
            self.backlog.push_back(to);
        }
    }

    /// Posts what waits, peer by peer, as far as there is room. Pending grade.
    #[cold]
    pub(crate) fn work_backlog(&mut self) {
        for _ in 0..self.backlog.len() {
            let Some(to) = self.backlog.pop_front() else { return };
            if let Some(connection) = self.connection_mut(to) {
                connection.in_backlog = false;
            }
            if self.work_pending(to) {
                self.enlist(to);
            }
        }
    }

    /// Posts what waits for one peer, in order. True while something is left.
    fn work_pending(&mut self, to: EndpointId) -> bool {
        loop {
            let Some(connection) = self.connection_mut(to) else { return false };
            if connection.state != State::Ready {
                return false;
            }
            // Taken out whole, so that the connection is open to the attempt, and put back with what could not go.
            let mut pending = std::mem::take(&mut connection.pending);
            connection.set_limit();
            let Some(request) = pending.pop_front() else { return false };
            let (token, waiting) = (request.token, pending.len());
            let attempt = self.attempt_request(to, &request);
            let posted = matches!(attempt, Attempt::Posted);
            if !posted {
                pending.push_front(request);
            }
            if let Some(connection) = self.connection_mut(to) {
                connection.pending = pending;
                connection.set_limit();
            }
            match attempt {
                Attempt::Posted => {
                    crate::counters::subtract(&self.counters.waiting, 1);
                    if events::is_any_active() {
                        self.watch_unqueued(to, token, waiting);
                    }
                }
                Attempt::Wait => return true,
                Attempt::Broken(error) => {
                    self.fail(to, Cause::Post { errno: error.0 });
                    return false;
                }
            }
        }
    }

    #[inline]
    fn attempt_request(&mut self, to: EndpointId, request: &Request) -> Attempt {
        let token = request.token;
        match &request.operation {
            Operation::Send { tag, spans, count, prompt } => {
                let signal = self.signal_of_send(*prompt);
                let spans = &spans[..usize::from(*count)];
                self.attempt(to, signal, token, |c, wr| c.qp.send(wr, spans, c.immediate(*tag)))
            }
            Operation::Put { local, remote } => {
                self.attempt(to, Signal::Always, token, |c, wr| c.qp.write(wr, *local, *remote))
            }
            Operation::PutInline { bytes, remote } => {
                self.attempt(to, Signal::Always, token, |c, wr| c.qp.write_inline(wr, bytes, *remote))
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
                self.attempt(to, Signal::Always, token, |c, wr| c.qp.write_inline(wr, &[], nowhere))
            }
        }
    }

    /// Fails what waits for a peer: it never reached the adapter.
    pub(crate) fn fail_pending(&mut self, to: EndpointId) {
        let Some(connection) = self.connection_mut(to) else { return };
        let pending = std::mem::take(&mut connection.pending);
        connection.set_limit();
        crate::counters::subtract(&self.counters.waiting, pending.len() as u64);
        if events::is_any_active() {
            for (index, request) in pending.iter().enumerate() {
                self.watch_unqueued(to, request.token, pending.len() - 1 - index);
            }
        }
        for request in pending.into_iter().filter(|request| request.token.0 != 0) {
            let outcome = Err(Failed { status: Status::FLUSHED });
            self.overflow.push_back(Event::Completed { token: request.token, to, outcome }.into());
        }
    }
}
