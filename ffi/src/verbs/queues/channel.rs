// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completion channels (`ibv_create_comp_channel(3)`): descriptors that become readable when a completion queue that
//! was armed gets a completion. Grade: setup, for threads that sleep. Threads: any (R4). Tests: `hw-tests`.

use crate::verbs::handle::Handle;
use crate::verbs::{Context, sys};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::ptr;
use std::sync::Arc;

/// A completion channel, whose descriptor does not block.
#[derive(Debug)]
pub struct CompletionChannel(Handle<sys::ibv_comp_channel, Arc<Context>>);

impl CompletionChannel {
    /// Makes a channel for completion queues of the device.
    ///
    /// # Errors
    /// The errno of the verb, or of `fcntl(2)`.
    pub fn new(context: &Arc<Context>) -> io::Result<Self> {
        // SAFETY: the context is open (R4).
        let raw = unsafe { sys::ibv_create_comp_channel(context.raw()) };
        // SAFETY: R4: the verb has just made it from `context`, which the handle keeps alive.
        let channel = CompletionChannel(unsafe { Handle::new(raw, Arc::clone(context)) }?);
        let descriptor = channel.as_fd().as_raw_fd();
        // SAFETY: the channel's own descriptor; these commands touch no memory.
        let code = unsafe {
            let flags = libc::fcntl(descriptor, libc::F_GETFL);
            libc::fcntl(descriptor, libc::F_SETFL, flags | libc::O_NONBLOCK)
        };
        if code < 0 { Err(io::Error::last_os_error()) } else { Ok(channel) }
    }

    pub(super) fn raw(&self) -> *mut sys::ibv_comp_channel {
        self.0.raw()
    }

    /// Takes all events out, so that the descriptor is readable only for later ones.
    pub(super) fn clear(&self) {
        let (mut queue, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: R4; the channel does not block, and both places may be written. An event keeps its queue until it is
        // acknowledged, once.
        unsafe {
            while sys::ibv_get_cq_event(self.raw(), &raw mut queue, &raw mut context) == 0 {
                sys::ibv_ack_cq_events(queue, 1);
            }
        }
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: R4; the field is set when the channel is made, which keeps the descriptor open.
        unsafe { BorrowedFd::borrow_raw((*self.raw()).fd) }
    }
}
