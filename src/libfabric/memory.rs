// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that the adapter of an endpoint accesses, and the tokens of its requests.
//!
//! Grade: hot for received messages and send buffers, else pending. Threads: the one that has entered the endpoint.
//! Tests: `hw-tests`.

use crate::messenger::host::{self, Record};
use crate::messenger::rails::send_buffers::BufferId;
use crate::messenger::rendezvous::stripes::Part;
use crate::transport::{ReceivedMessage, TakesRequests, Token};
use ibex_ffi::verbs::{Access, InlineSpan, LocalSpan};

use super::environment::{self, Environment, Memory as _, Others as _};
use super::request::Handle;
use super::{RegisteredOf, Shared, State};

impl<E: Environment> host::Memory for State<E> {
    type Received<'m> = <E::Memory as environment::Memory>::Received<'m>;

    fn address(&mut self, request: Handle) -> Option<u64> {
        environment::Data::address(&self.requests.get(request).core.data)
    }

    fn register(
        &mut self,
        _: &Shared<E::Adapter>,
        request: Handle,
        _: usize,
        length: usize,
        access: Access,
    ) -> Option<RegisteredOf<E>> {
        self.others.memory().register(&self.requests.get(request).core.data, length, access)
    }

    fn rkey(registered: RegisteredOf<E>) -> u32 {
        E::Memory::rkey(registered)
    }

    fn target(&mut self, receive: Handle, part: Part, registered: RegisteredOf<E>) -> LocalSpan {
        self.others.memory().target(&self.requests.get(receive).core.data, part, registered)
    }

    #[inline]
    fn inline<R>(&mut self, send: Handle, post: impl FnOnce(InlineSpan<'_>) -> R) -> Option<R> {
        environment::Data::inline(&self.requests.get(send).core.data, post)
    }

    #[inline]
    fn fill<R>(&mut self, send: Handle, buffer: LocalSpan, fill: impl FnOnce(&mut E::Data, &mut [u8]) -> R) -> R {
        let data = &mut self.requests.get(send).core.data;
        self.others.memory().fill(buffer, |bytes| fill(data, bytes))
    }

    fn copy_of(&mut self, buffer: LocalSpan) -> Vec<u8> {
        self.others.memory().fill(buffer, |bytes| bytes.to_vec())
    }

    #[inline(always)]
    fn received<'m>(&mut self, message: &'m ReceivedMessage) -> Self::Received<'m> {
        self.others.memory().received(message)
    }

    #[inline]
    fn token(record: Record<Handle>) -> Token {
        let (kind, number) = match record {
            Record::Buffer(BufferId(buffer)) => (BUFFER, buffer),
            Record::Read(Handle(request)) => (READ, request),
            Record::Sent(Handle(request)) => (SENT, request),
            Record::Turn => (TURN, 0),
        };
        Token(kind << 32 | u64::from(number))
    }

    #[inline]
    fn record_of(Token(token): Token) -> Option<Record<Handle>> {
        let number = token as u32;
        Some(match token >> 32 {
            BUFFER => Record::Buffer(BufferId(number)),
            READ => Record::Read(Handle(number)),
            SENT => Record::Sent(Handle(number)),
            TURN => Record::Turn,
            _ => return None,
        })
    }
}

const BUFFER: u64 = 1;
const READ: u64 = 2;
const SENT: u64 = 3;
const TURN: u64 = 4;

/// Takes the completions of silent send buffers in place, and those of one-sided operations.
impl<E: Environment> TakesRequests for State<E> {
    #[inline(always)]
    fn takes_request(&mut self, token: Token) -> bool {
        match <Self as host::Memory>::record_of(token) {
            Some(Record::Buffer(buffer)) => self.messenger.rails.buffers[0].give_back_silent(buffer),
            Some(_) => false,
            None => {
                let is_own = self.others.ended(token, &self.reports);
                self.has_more |= self.others.is_due();
                is_own
            }
        }
    }
}
