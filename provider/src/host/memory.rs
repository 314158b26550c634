// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that the adapter of an endpoint accesses, and the tokens of its requests.
//!
//! Grade: hot for received messages and send buffers, else pending. Threads: the one that has entered the endpoint.
//! Tests: `hw-tests`.

use ibex::messenger::host::{Memory, Record};
use ibex::messenger::rails::send_buffers::BufferId;
use ibex::messenger::rendezvous::stripes::Part;
use ibex::transport::{ReceivedMessage, TakesRequests, Token};
use ibex_ffi::verbs::{Access, InlineSpan, LocalSpan};

use super::data::Data;
use super::request::Handle;
use super::{Shared, State};
use crate::registration::Registered;

impl Memory for State {
    type Received<'m> = &'m [u8];

    fn address(&mut self, request: Handle) -> Option<u64> {
        self.requests.get(request).core.data.start().map(|start| start.expose_provenance() as u64)
    }

    fn register(&mut self, _: &Shared, request: Handle, _: usize, length: usize, access: Access) -> Option<Registered> {
        let start = self.requests.get(request).core.data.start()?;
        // SAFETY: A1: the messenger gives the registration back before the operation ends.
        unsafe { self.rma.registrations.of_message(start.expose_provenance(), length, access) }
    }

    fn rkey(registered: Registered) -> u32 {
        registered.rkey
    }

    fn target(&mut self, receive: Handle, Part { offset, length }: Part, registered: Registered) -> LocalSpan {
        let start = self.requests.get(receive).core.data.start().map_or(0, <*const u8>::expose_provenance);
        // SAFETY: R3: the part stays registered under this key until the last read completes; R2, A1: until then it
        // belongs to the adapter.
        unsafe { LocalSpan::new(start as u64 + offset, length, registered.lkey) }
    }

    #[inline]
    fn inline<R>(&mut self, send: Handle, post: impl FnOnce(InlineSpan<'_>) -> R) -> Option<R> {
        self.requests.get(send).core.data.span().map(post)
    }

    #[inline]
    fn fill<R>(&mut self, send: Handle, buffer: LocalSpan, fill: impl FnOnce(&mut Data, &mut [u8]) -> R) -> R {
        // SAFETY: R1, R2: a free send buffer of the port, which only this endpoint uses, entered by one thread.
        fill(&mut self.requests.get(send).core.data, unsafe { buffer.bytes_mut() })
    }

    fn copy_of(&mut self, buffer: LocalSpan) -> Vec<u8> {
        // SAFETY: R1, R2: as in `fill`.
        unsafe { buffer.bytes_mut() }.to_vec()
    }

    #[inline(always)]
    fn received<'m>(&mut self, message: &'m ReceivedMessage) -> &'m [u8] {
        let start = std::ptr::with_exposed_provenance(message.address() as usize);
        // SAFETY: R1, R2: only a port makes a `ReceivedMessage`, for a slot that the adapter has filled, and lends it
        // until it posts the slot again.
        unsafe { std::slice::from_raw_parts(start, message.length() as usize) }
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
impl TakesRequests for State {
    #[inline(always)]
    fn takes_request(&mut self, token: Token) -> bool {
        match State::record_of(token) {
            Some(Record::Buffer(buffer)) => self.messenger.rails.buffers[0].give_back_silent(buffer),
            Some(_) => false,
            None => self.ends_one_sided(token, None),
        }
    }
}
