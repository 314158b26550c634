// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queues: completion queues with their completions, reliable-connected queue pairs, shared receive queues, and the
//! datagram queue pairs of the handshake. This file has the traits of the transport's two queues, which
//! [`super::QueuePair`], [`super::CompletionQueue`] and the simulated adapter of the engine's tests implement. Hot:
//! posts and polls; the rest: setup grade. One thread at a time (`&mut`).

pub(super) mod channel;
pub(super) mod completion;
pub(super) mod cq;
pub(super) mod qp;
pub(super) mod srq;
mod stamped;
pub(super) mod ud;

use crate::verbs::{Access, Path, PostError, Reception, Transition, Work, WorkCompletion, Wr};
use std::io;

/// A queue pair, as the transport uses it.
pub trait TakesWork: Send {
    /// Its number, 24 bits.
    fn number(&self) -> u32;

    /// Most bytes that a work request carries inline.
    fn max_inline(&self) -> u32;

    /// Posts a work request. The caller may reuse bytes carried inline, at most [`Self::max_inline`], at once. Hot.
    ///
    /// # Errors
    /// [`PostError`]; nothing was posted.
    fn post(&mut self, wr: Wr, work: Work<'_>) -> Result<(), PostError>;

    /// Moves from reset to initialised, on the port's partition; peers get `access`.
    ///
    /// # Errors
    /// The errno of `ibv_modify_qp(3)`.
    fn initialise(&mut self, port: u8, pkey_index: u16, access: Access) -> io::Result<()>;

    /// Moves from initialised to ready-to-receive, from `path`: it takes and acknowledges the peer's messages.
    ///
    /// # Errors
    /// `EINVAL`: the adapter has no route to the path. `ETIMEDOUT`: it could not resolve the peer's link address.
    fn ready_to_receive(&mut self, path: &Path, to: &Reception) -> io::Result<()>;

    /// Moves from ready-to-receive to ready-to-send. The timers are those of the connection for its life.
    ///
    /// # Errors
    /// The errno of `ibv_modify_qp(3)`.
    fn ready_to_send(&mut self, to: &Transition) -> io::Result<()>;

    /// Moves from any state to reset: posted requests vanish without a completion. The number stays.
    ///
    /// # Errors
    /// The errno of `ibv_modify_qp(3)`.
    fn reset(&mut self) -> io::Result<()>;

    /// Moves from any state to error: posted requests complete as flushed.
    ///
    /// # Errors
    /// The errno of `ibv_modify_qp(3)`.
    fn fail(&mut self) -> io::Result<()>;
}

/// A completion queue, as the transport uses it.
pub trait CompletesWork: Send {
    /// Takes up to a batch of completions. Hot.
    ///
    /// # Errors
    /// The queue is broken: overrun, or the device is gone.
    fn poll(&mut self) -> io::Result<&[WorkCompletion]>;

    /// Like [`Self::poll`], with the adapter's raw timestamp of each completion.
    ///
    /// # Errors
    /// As [`Self::poll`]; `EOPNOTSUPP` if the adapter does not stamp.
    fn poll_stamped(&mut self) -> io::Result<(&[WorkCompletion], &[u64])> {
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }

    /// Most completions that a poll takes.
    fn batch(&self) -> usize;

    /// Most completions that it holds: the number that the adapter granted, at least the wanted one.
    fn capacity(&self) -> u32;
}
