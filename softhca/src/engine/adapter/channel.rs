// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completion channels: a pipe that several completion queues notify.
//!
//! Called by: the C side; cq (uses one). Grade: events; a program comes here when it sleeps between messages. Thread
//! rule: any thread.

use std::{
    os::fd::RawFd,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use crate::engine::{Errno, Result, adapter::hca::Hca, fabric::pipes::Mailbox};

/// A completion channel.
pub struct Channel(pub(crate) Arc<ChannelState>);

pub(crate) struct ChannelState {
    pub(crate) mailbox: Mailbox,
    /// Completion queues that use it.
    pub(crate) users: AtomicU32,
}

impl Channel {
    /// Readable when an event waits; may be made `O_NONBLOCK`.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.0.mailbox.fd()
    }

    /// The cookie of the queue whose event comes next; waits unless the descriptor is `O_NONBLOCK`.
    /// # Errors
    /// EAGAIN, EINTR.
    pub fn read_event(&self) -> Result<u64> {
        self.0.mailbox.read().map(|record| record.cookie)
    }

    /// # Errors
    /// EBUSY while a queue uses it.
    pub fn destroy(&self) -> Result<()> {
        if self.0.users.load(Ordering::Acquire) == 0 { Ok(()) } else { Err(Errno(libc::EBUSY)) }
    }
}

impl Hca {
    /// A completion channel.
    /// # Errors
    /// EMFILE.
    pub fn create_channel(self: &Arc<Self>) -> Result<Channel> {
        let mailbox = Mailbox::new(self.fabric.folder(), self.fabric.next_id())?;
        Ok(Channel(Arc::new(ChannelState { mailbox, users: AtomicU32::new(0) })))
    }
}
