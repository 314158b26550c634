// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interface between the transport and an adapter: create a queue pair, post to it, change its state, poll, post
//! receives.
//!
//! [`Adapter`] is the only interface to the device. `adapter/verbs.rs` implements it with libibverbs;
//! `adapter/scripted.rs` is the scripted adapter of the unit tests. All calls are resolved at compile time, so the
//! interface costs no instruction. The traits of the two queues are `ibex-ffi`'s, which implements them itself. Objects are destroyed when they are dropped. Hot: `post`, `poll`,
//! [`ReceiveQueue::post`]. The rest is setup grade. Threads: the port's.

pub mod verbs;

#[cfg(test)]
pub(crate) mod scripted;

use crate::connect::carriers::Carriers;
use crate::select::PortChoice;
use ibex_ffi::verbs::{AsyncEvent, LocalSpan};
pub use ibex_ffi::verbs::{CompletesWork as CompletionQueue, TakesWork as QueuePair, Work};
use std::io;
use std::time::Duration;

/// A port of an adapter: makes what the parts of the transport own.
pub trait Adapter: Send {
    /// A reliable-connected queue pair that receives through the port's receive queue.
    type QueuePair: QueuePair;
    /// The port's completion queue.
    type CompletionQueue: CompletionQueue;
    /// The port's receive queue.
    type ReceiveQueue: ReceiveQueue;
    /// Registered memory to send from.
    type SendSlots: SendSlots;
    /// What hellos come and go by.
    type Carriers: Carriers;

    /// Makes a queue pair in the reset state.
    ///
    /// # Errors
    /// What the adapter says: `ENOMEM` where it has no more.
    fn queue_pair(&self, cq: &Self::CompletionQueue, receives: &Self::ReceiveQueue) -> io::Result<Self::QueuePair>;

    /// Registers `count` slots of `size` bytes each to send from.
    ///
    /// # Errors
    /// `ENOMEM` where memory, or the limit of locked memory, does not suffice.
    fn send_slots(&self, size: u32, count: u32) -> io::Result<Self::SendSlots>;

    /// The port as it is addressed now, which was chosen as `choice`; `None` where the device does not say.
    fn refresh(&self, choice: &PortChoice) -> Option<PortChoice>;

    /// What happened to the device since the last call, one event at a time.
    fn async_event(&self) -> Option<AsyncEvent>;

    /// The time since any fixed moment.
    fn now(&self) -> Duration;
}

/// A receive queue and the slots that are posted to it, all of one size.
pub trait ReceiveQueue: Send {
    /// How many slots there are.
    fn slots(&self) -> u32;

    /// Posts receives into these slots, each with its own number as identifier ([`crate::transport::WrId::receive`]);
    /// at most a batch of them. Returns how many were posted, from the first on. Hot.
    ///
    /// # Errors
    /// Where none was posted.
    fn post(&mut self, slots: &[u32]) -> io::Result<usize>;

    /// Where a slot starts; `None` beyond the last.
    fn address(&self, slot: u32) -> Option<u64>;

    /// Copies the bytes of a slot, from its start on. False where there is no such slot, or it is smaller.
    fn copy(&self, slot: u32, into: &mut [u8]) -> bool;
}

/// Registered slots to send from, all of one size.
pub trait SendSlots: Send {
    /// How many there are.
    fn count(&self) -> u32;

    /// Bytes that are registered.
    fn bytes(&self) -> u64;

    /// Bytes of these in explicit huge pages.
    fn explicit_bytes(&self) -> u64;

    /// A slot, whole; `None` beyond the last.
    fn span(&self, slot: u32) -> Option<LocalSpan>;

    /// Copies `bytes` to the start of a slot. Returns the span they have there.
    fn write(&mut self, slot: u32, bytes: &[u8]) -> Option<LocalSpan>;
}
