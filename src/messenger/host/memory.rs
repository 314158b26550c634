// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that a host's adapters access: the data of its requests and the send buffers; and the tokens by which the
//! ports name requests and buffers.
//!
//! Called by `messenger/rails`. Grade: hot for [`Memory::received`], [`Memory::fill`] and tokens, else pending; by
//! static dispatch. Threads: the one that has entered the messenger. Tests: those of the hosts.

use std::ops::Deref;

use ibex_ffi::verbs::{Access, InlineSpan, LocalSpan};

use super::{Host, Ports, Types};
use crate::messenger::rails::fragment::Fragment;
use crate::messenger::rails::send_buffers::BufferId;
use crate::messenger::rendezvous::stripes::Part;
use crate::transport::{ReceivedMessage, Token};

/// The memory that a host's adapters access.
pub trait Memory: Host + Ports<Fragment = Fragment<<Self as Types>::Handle>> {
    /// The bytes of a received message.
    type Received<'m>: Deref<Target = [u8]>;

    /// Returns the address of the contiguous data of a request; `None`: it has gaps.
    fn address(&mut self, request: Self::Handle) -> Option<u64>;

    /// Registers the first `length` bytes of the contiguous data of a request with the port of a rail. `None`: the port
    /// does not exist, or cannot register them.
    fn register(
        &mut self,
        process: &Self::Process,
        request: Self::Handle,
        rail: usize,
        length: usize,
        access: Access,
    ) -> Option<Self::Registration>;

    /// Returns the key by which peers name registered memory.
    fn rkey(registered: Self::Registration) -> u32;

    /// Names a part of the data of a receive, which is registered, as the destination of a read.
    fn target(&mut self, receive: Self::Handle, part: Part, registered: Self::Registration) -> LocalSpan;

    /// Calls `post` with the contiguous data of a send, to be copied into a work request. `None`: the data has gaps.
    fn inline<R>(&mut self, send: Self::Handle, post: impl FnOnce(InlineSpan<'_>) -> R) -> Option<R>;

    /// Calls `fill` with the data of a send and the bytes of a send buffer that the adapter does not use.
    fn fill<R>(
        &mut self,
        send: Self::Handle,
        buffer: LocalSpan,
        fill: impl FnOnce(&mut Self::Data, &mut [u8]) -> R,
    ) -> R;

    /// Returns a copy of the bytes of a send buffer that the adapter does not use.
    fn copy_of(&mut self, buffer: LocalSpan) -> Vec<u8>;

    /// Returns the bytes of a message in its slot.
    fn received<'m>(&mut self, message: &'m ReceivedMessage) -> Self::Received<'m>;

    /// Makes the token of a work request. It is not 0, which stands for no token.
    fn token(record: Record<Self::Handle>) -> Token;

    /// Returns the record of a token that the port has returned, which it does once. `None`: it is not the messenger's.
    fn record_of(token: Token) -> Option<Record<Self::Handle>>;
}

/// The record that the token of a work request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<T> {
    /// A send buffer of the port.
    Buffer(BufferId),
    /// A request whose read has ended.
    Read(T),
    /// A request whose message or fragment was sent without a buffer.
    Sent(T),
    /// The turn of pending messages.
    Turn,
}
