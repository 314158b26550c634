// SPDX-License-Identifier: MIT OR Apache-2.0
//! When to probe a peer that has left all communicators.
//!
//! Used by `port/parting.rs`. Path: setup. Plain data. Tests: `port/tests/partings.rs`.

use crate::transport::work_request::EndpointId;
use std::time::Duration;

/// The time until a peer is first asked; it doubles each time.
const FIRST: Duration = Duration::from_secs(1);

/// The longest time.
const LONGEST: Duration = Duration::from_secs(64);

/// A peer parted from whose connection is still there.
#[derive(Debug)]
pub(crate) struct Parted {
    pub(crate) peer: EndpointId,
    /// When it is asked next.
    due: Duration,
    wait: Duration,
}

impl Parted {
    /// From now on.
    pub(crate) fn new(peer: EndpointId, now: Duration) -> Self {
        Parted { peer, due: now + FIRST, wait: FIRST }
    }

    /// Whether it is to be asked now. Once true, not again for twice as long.
    pub(crate) fn is_due(&mut self, now: Duration) -> bool {
        if now < self.due {
            return false;
        }
        self.wait = (self.wait * 2).min(LONGEST);
        self.due = now + self.wait;
        true
    }
}
