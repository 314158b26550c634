// SPDX-License-Identifier: MIT OR Apache-2.0
//! When to probe a peer that has left all communicators. Used by `port/parting.rs`. Path: setup. Plain data. Tests:
//! `port/tests/partings.rs`.

use crate::transport::work_request::EndpointId;
use std::time::Duration;

/// Time until the first probe; it doubles with each probe.
const FIRST: Duration = Duration::from_secs(1);

const LONGEST: Duration = Duration::from_secs(64);

/// A parted peer whose connection still exists.
#[derive(Debug)]
pub(crate) struct Parted {
    pub(crate) peer: EndpointId,
    due: Duration,
    wait: Duration,
}

impl Parted {
    pub(crate) fn new(peer: EndpointId, now: Duration) -> Self {
        Parted { peer, due: now + FIRST, wait: FIRST }
    }

    /// Whether a probe is due now. Once true, false for twice as long as before.
    pub(crate) fn is_due(&mut self, now: Duration) -> bool {
        if now < self.due {
            return false;
        }
        self.wait = (self.wait * 2).min(LONGEST);
        self.due = now + self.wait;
        true
    }
}
