// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interface between the transport and an adapter: create queue pairs, post, change states, poll, post receives.
//!
//! [`Adapter`] is the only interface to the device. `adapter/verbs.rs` implements it with libibverbs,
//! `adapter/simulated` for tests without a device. The compiler resolves all calls, so the interface costs no
//! instruction. `ibex-ffi` has the traits of the two queues, and implements them. Objects are destroyed when they are
//! dropped. Grade: hot for `post`, `poll` and [`ReceiveQueue::post`], else setup. Threads: the port's.

pub mod verbs;

#[cfg(any(test, feature = "stand-in"))]
pub mod simulated;

use crate::connect::carriers::Carriers;
use crate::select::PortChoice;
use ibex_ffi::verbs::{AsyncEvent, LocalSpan};
pub use ibex_ffi::verbs::{CompletesWork as CompletionQueue, TakesWork as QueuePair, Work};
use std::io;
use std::time::Duration;

/// A port of an adapter: makes the objects that the parts of the transport own.
pub trait Adapter: Send {
    /// A reliable-connected queue pair that receives through the port's receive queue.
    type QueuePair: QueuePair;
    /// The port's completion queue.
    type CompletionQueue: CompletionQueue;
    /// The port's receive queue.
    type ReceiveQueue: ReceiveQueue;
    /// Registered memory to send from.
    type SendSlots: SendSlots;
    /// The carriers of hellos.
    type Carriers: Carriers;

    /// Makes a queue pair in the reset state.
    ///
    /// # Errors
    /// The adapter's error: `ENOMEM` if it has no more queue pairs.
    fn queue_pair(&self, cq: &Self::CompletionQueue, receives: &Self::ReceiveQueue) -> io::Result<Self::QueuePair>;

    /// Registers `count` slots of `size` bytes each to send from.
    ///
    /// # Errors
    /// `ENOMEM` if memory, or the limit of locked memory, does not suffice.
    fn send_slots(&self, size: u32, count: u32) -> io::Result<Self::SendSlots>;

    /// Asks for the current address of the port chosen as `choice`; `None` if the device does not answer.
    fn refresh(&self, choice: &PortChoice) -> Option<PortChoice>;

    /// Returns the next asynchronous event of the device.
    fn async_event(&self) -> Option<AsyncEvent>;

    /// Returns the time since a fixed moment.
    fn now(&self) -> Duration;
}

/// A receive queue and the slots that are posted to it, all of one size.
pub trait ReceiveQueue: Send {
    /// Number of slots.
    fn slots(&self) -> u32;

    /// Posts receives into these slots, at most a batch, each with its slot as identifier
    /// ([`crate::transport::WrId::receive`]). Returns the number posted, from the first on. Hot.
    ///
    /// # Errors
    /// If none was posted.
    fn post(&mut self, slots: &[u32]) -> io::Result<usize>;

    /// Returns the address of a slot; `None` beyond the last.
    fn address(&self, slot: u32) -> Option<u64>;

    /// Copies the bytes at the start of a slot. False if there is no such slot, or it is smaller than `into`.
    fn copy(&self, slot: u32, into: &mut [u8]) -> bool;
}

/// Registered slots to send from, all of one size.
pub trait SendSlots: Send {
    /// Number of slots.
    fn count(&self) -> u32;

    /// Number of registered bytes.
    fn bytes(&self) -> u64;

    /// Number of these bytes that are in explicit huge pages.
    fn explicit_bytes(&self) -> u64 {
        0
    }

    /// Returns a whole slot; `None` beyond the last.
    fn span(&self, slot: u32) -> Option<LocalSpan>;

    /// Copies `bytes` to the start of a slot. Returns their span.
    fn write(&mut self, slot: u32, bytes: &[u8]) -> Option<LocalSpan>;
}
