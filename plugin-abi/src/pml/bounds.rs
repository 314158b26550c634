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

use super::holders::Holders;
use super::link::{Account, Link};
use super::request::Request;

/// Both sides of this process, and where it is shown what they do: the counts of its first port.
pub(crate) struct Flow {
    pub(crate) kept: Kept<Account>,
    pub(crate) outgoing: Outgoing<Account, NonNull<Request>>,
    /// Which links are marked where a peer holds back.
    pub(crate) holders: Holders,
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
        let (kept, outgoing) = (Kept::new(limits), Outgoing::new(limits));
        Flow { kept, outgoing, holders: Holders::default(), shown, is_behind: false }
    }

    /// A peer has gone, to which these links led.
    pub(crate) fn forget(&mut self, account: Account, links: &[Link]) {
        self.kept.forget(account);
        self.outgoing.forget(account);
        for link in links {
            self.holders.forget(*link);
        }
    }

    /// Shows it.
    pub(crate) fn show(&self) {
        self.shown.unexpected_memory.store(self.kept.bytes(), Ordering::Relaxed);
    }
}
