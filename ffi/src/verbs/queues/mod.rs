// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traits of the transport's two queues, implemented by [`super::QueuePair`], [`super::CompletionQueue`] and the
//! scripted adapter of the engine's tests. Hot: `post`, `poll`; the rest: setup grade. One thread at a time (`&mut`).

pub(super) mod completion;
pub(super) mod cq;
pub(super) mod qp;
pub(super) mod srq;
mod stamped;
pub(super) mod ud;

use crate::verbs::{Access, Path, PostError, Reception, Transition, Work, WorkCompletion, Wr};
use std::io;

/// What the transport asks of a queue pair.
pub trait TakesWork: Send {
    /// Its number, 24 bits.
    fn number(&self) -> u32;

    /// The most bytes a work request carries inline.
    fn max_inline(&self) -> u32;

    /// Posts a work request. What it carries inline, at most [`Self::max_inline`] bytes, may be reused at once. Hot.
    ///
    /// # Errors
    /// [`PostError`]; nothing was posted.
    fn post(&mut self, wr: Wr, work: Work<'_>) -> Result<(), PostError>;

    /// Reset to initialised, on the port's partition; peers get `access`.
    ///
    /// # Errors
    /// The errno of `ibv_modify_qp(3)`.
    fn initialise(&mut self, port: u8, pkey_index: u16, access: Access) -> io::Result<()>;

    /// Initialised to ready-to-receive, from `path`: what the peer sends is taken and acknowledged.
    ///
    /// # Errors
    /// `EINVAL` for a path the adapter has no route to, `ETIMEDOUT`: the peer's link address was not resolved.
    fn ready_to_receive(&mut self, path: &Path, to: &Reception) -> io::Result<()>;

    /// Ready-to-receive to ready-to-send. The timers hold as long as the connection.
    ///
    /// # Errors
    /// The errno of `ibv_modify_qp(3)`.
    fn ready_to_send(&mut self, to: &Transition) -> io::Result<()>;

    /// Any state to reset: what is posted is forgotten without a completion. The number stays.
    ///
    /// # Errors
    /// The errno of `ibv_modify_qp(3)`.
    fn reset(&mut self) -> io::Result<()>;

    /// Any state to error: what is posted completes as flushed.
    ///
    /// # Errors
    /// The errno of `ibv_modify_qp(3)`.
    fn fail(&mut self) -> io::Result<()>;
}

/// What the transport asks of a completion queue.
pub trait CompletesWork: Send {
    /// Takes up to a batch of completions. Hot.
    ///
    /// # Errors
    /// The queue is broken: overrun, or the device is gone.
    fn poll(&mut self) -> io::Result<&[WorkCompletion]>;

    /// As [`Self::poll`], and with each completion the adapter's raw stamp.
    ///
    /// # Errors
    /// As [`Self::poll`]; `EOPNOTSUPP` where the adapter does not stamp.
    fn poll_stamped(&mut self) -> io::Result<(&[WorkCompletion], &[u64])> {
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }

    /// How many completions a poll takes at most.
    fn batch(&self) -> usize;

    /// How many completions it holds at most: what the adapter granted, at least what was asked for.
    fn capacity(&self) -> u32;
}
