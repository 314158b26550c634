// SPDX-License-Identifier: MIT OR Apache-2.0
//! What flow control keeps for the PML, and the bounds that are no parameters.
//!
//! The state machines are `engine::protocol::flow_control`; `flow` and `resume` use this. Grade: pending. Threads: who
//! has entered the PML.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::counters::Counters;
use engine::protocol::flow_control::{Kept, Limits, Outgoing};

use super::link::Account;
use super::request::Request;

/// Both sides of this process, and where it is shown what they do: the counts of its first port.
pub(crate) struct Flow {
    pub(crate) kept: Kept<Account>,
    pub(crate) outgoing: Outgoing<Account, NonNull<Request>>,
    pub(crate) shown: Arc<Counters>,
    /// A send has found the port's queue full since this process took all that had come.
    pub(crate) is_behind: bool,
}

/// Bytes of messages to one peer that may wait for the port: sixteen of the longest at once, or some thousands of short
/// ones.
const WAITING: u64 = 192 << 10;

/// Messages announced to a peer in a communicator without an answer: some 128 KiB there.
const WINDOW: u32 = 1024;

/// What a message takes beside its bytes, while it waits for the port or for its receive.
pub(crate) const RECORD: u64 = 128;

impl Flow {
    /// Of a process that keeps at most so many bytes, and shows it there.
    pub(crate) fn new(bound: u64, shown: Arc<Counters>) -> Self {
        let limits = Limits { kept: bound, waiting: WAITING.min(bound), window: WINDOW };
        Flow { kept: Kept::new(limits), outgoing: Outgoing::new(limits), shown, is_behind: false }
    }

    /// Shows it.
    pub(crate) fn show(&self) {
        self.shown.unexpected_memory.store(self.kept.bytes(), Ordering::Relaxed);
    }
}
