// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that the processes of one machine share. A host without it keeps the default methods.
//!
//! Called by `messenger/rails`. Grade: pending, by static dispatch. Threads: the one that has entered the messenger,
//! and no port. Tests: those of the hosts.

use super::Host;
use crate::messenger::header::Header;

/// Shared memory of a host's machine. A number names each process there (`Route::as_local`).
pub trait SharedMemory: Host {
    /// Returns the length of the longest data of a message, bytes; `None`: there is no shared memory.
    fn room(&self, _process: &Self::Process) -> Option<usize> {
        None
    }

    /// Sends header and data to a process. Returns false if there is no room now.
    fn send_locally(
        &mut self,
        _process: &Self::Process,
        _to: u32,
        _header: &Header<Self::Envelope>,
        _payload: &Payload<Self::Handle>,
    ) -> bool {
        false
    }

    /// Notes whether messages to a process wait: then no short message may overtake them.
    fn hold_up(&mut self, _process: &Self::Process, _to: u32, _waits: bool) {}
}

/// Data of a message by shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload<T> {
    /// No data.
    Nothing,
    /// A part of the contiguous data of a send: offset and length. The send is not finished before this is sent.
    Part(T, u64, usize),
    /// A packed copy.
    Packed(Vec<u8>),
}
