// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an endpoint stands on: memory, an address vector, queues and counters, and what shares its port. The provider
//! has those of C programs, the simulation invented ones; the rules of libfabric are the same for both.
//!
//! Called by the endpoint, by static dispatch. Grade: hot for [`Piece`], [`Data`], [`Queue::push`] and
//! [`Memory::received`]. Threads: the one that has entered the endpoint. Tests: those of the implementations.

use std::fmt::Debug;
use std::ops::Deref;

use ibex_ffi::verbs::{Access, InlineSpan, LocalSpan};

use super::completion::{Completion, Failure};
use super::fi;
use super::reports::Reports;
use super::{Shared, State};
use crate::messenger::events::Event;
use crate::messenger::host;
use crate::messenger::rendezvous::stripes::Part;
use crate::peer::PeerName;
use crate::transport::adapter::Adapter;
use crate::transport::{self, EndpointId, Port, ReceivedMessage, Token};

/// The types that an endpoint stands on, and what it tells.
pub trait Environment: Sized + 'static {
    /// The adapter of its port.
    type Adapter: Adapter;
    /// The data of its operations.
    type Data: Data;
    /// The memory of its operations, as its adapter sees it.
    type Memory: Memory<Data = Self::Data>;
    /// The address vector.
    type Vector: Vector;
    /// A completion queue.
    type Queue: Queue;
    /// A counter.
    type Counter: Counter;
    /// What records the events of messages for tools.
    type Recorder: Recorder;
    /// The other operations of its port: the one-sided ones.
    type Others: Others<Self>;

    /// Tells the user why a peer is lost.
    fn tell_lost(reason: &str);

    /// Has the port wake those who sleep when there is something to do, or tells the user that they may wake late.
    fn arm(port: &mut Port<Self::Adapter>);
}

/// The data of an operation: one piece of memory or several, or a copy that it owns.
pub trait Data: host::Data + Debug {
    /// A piece of memory.
    type Piece: Piece;

    /// The data of a message without any.
    const NONE: Self;

    /// Changes it to a piece.
    fn set(&mut self, to: Self::Piece);

    /// Returns it if it is one piece.
    fn piece(&self) -> Option<Self::Piece>;

    /// Frees what it owns.
    fn free(&mut self);

    /// Copies the data, for a send whose memory the program may reuse at once.
    #[must_use]
    fn copied(&self) -> Self;

    /// Whether it is such a copy.
    fn is_copied(&self) -> bool;

    /// Copies the beginning of a send's data, as much as there is room for.
    fn copy_of(&mut self, send: &Self);

    /// Address of the first byte of data in one piece.
    fn address(&self) -> Option<u64>;

    /// Calls `with` with data in one piece as a span. `None`: there are several.
    fn inline<R>(&self, with: impl FnOnce(InlineSpan<'_>) -> R) -> Option<R>;
}

/// A piece of a program's memory.
pub trait Piece: Clone + Debug {
    /// Number of bytes.
    fn length(&self) -> usize;

    /// Returns the part behind the first bytes.
    #[must_use]
    fn behind(&self, length: usize) -> Self;
}

/// The memory of operations, which the adapter accesses.
pub trait Memory {
    /// The data of an operation.
    type Data;
    /// A registration with the port.
    type Registered: Copy + Debug;
    /// The bytes of a received message.
    type Received<'m>: Deref<Target = [u8]>;

    /// Registers the first `length` bytes of the data of an operation. `None`: it has several pieces, or they cannot be
    /// registered. The endpoint gives the registration back before the operation ends.
    fn register(&mut self, data: &Self::Data, length: usize, access: Access) -> Option<Self::Registered>;

    /// Takes a registration back, which no posted work request names.
    fn give_back(&mut self, registered: Self::Registered);

    /// Returns the key by which peers name registered memory.
    fn rkey(registered: Self::Registered) -> u32;

    /// Names a part of registered data as the destination of a read. It stays registered until the last read has ended.
    fn target(&self, data: &Self::Data, part: Part, registered: Self::Registered) -> LocalSpan;

    /// Calls `fill` with the bytes of a send buffer of the port that the adapter does not use.
    fn fill<R>(&self, buffer: LocalSpan, fill: impl FnOnce(&mut [u8]) -> R) -> R;

    /// Returns the bytes of a message in its slot.
    fn received<'m>(&self, message: &'m ReceivedMessage) -> Self::Received<'m>;
}

/// An address vector (`fi_av(3)`).
pub trait Vector {
    /// Returns the name of the peer with this address.
    fn name(&self, address: fi::Address) -> Option<PeerName>;

    /// Returns the first address of a peer.
    fn address(&self, name: PeerName) -> Option<fi::Address>;
}

/// A completion queue. Its endpoint pushes while a thread is inside its domain.
pub trait Queue {
    /// Adds the completion of a successful operation.
    fn push(&self, completion: Completion);

    /// Adds the completion of an operation that failed.
    fn push_failure(&self, completion: Completion, failure: Failure<'_>);
}

/// A counter (`fi_cntr(3)`).
pub trait Counter {
    /// Counts an operation that has ended.
    fn count(&self, has_failed: bool);
}

/// What records the events of requests and messages.
pub trait Recorder: Copy {
    /// The context of tagged messages; that of untagged ones follows.
    const CONTEXT: u32;

    /// Whether this event is recorded.
    fn wants(self, event: Event) -> bool;

    /// Reserves numbers: the returned one, and every second one after it.
    fn numbers(self, count: u64) -> u64;

    /// Records an event of a request, a message or a search. `elements`: its values, in the order of its type.
    fn put<const N: usize>(self, event: Event, elements: &[u64; N]);
}

/// The operations of an endpoint's port that are no messages, and the memory that they share with the messages.
pub trait Others<E: Environment> {
    /// Returns the memory of all operations.
    fn memory(&mut self) -> &mut E::Memory;

    /// Whether something waits until no port is entered: [`Self::take_due`].
    fn is_due(&self) -> bool;

    /// Does what waits until no port is entered.
    fn take_due(state: &mut State<E>, shared: &Shared<E::Adapter>);

    /// Handles the end of a request that succeeded. Returns whether it is one of these operations.
    fn ended(&mut self, token: Token, reports: &Reports<E::Queue, E::Counter>) -> bool;

    /// Ends the operations that a lost peer will not answer.
    fn end_unanswered(&mut self, is_lost: impl Fn(EndpointId) -> bool, reports: &Reports<E::Queue, E::Counter>);

    /// Handles a completion of a poll that is not the messenger's.
    fn handle(state: &mut State<E>, shared: &Shared<E::Adapter>, event: &transport::Completion);
}
