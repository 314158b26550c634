// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides when to probe a peer. Only a failed request shows that a peer is dead. If the runtime does not end the job
//! (`mpirun --enable-recovery`), a rank that only waits for a dead peer would wait for ever. `port/connect.rs` checks
//! whether probes of idle peers are due; off unless `btl_ibex_probe_interval` is set. `port/closing.rs` probes peers
//! that have left all communicators. Grade: setup. Threads: the port's. Tests: below, `port/tests`,
//! `port/tests/partings.rs`, and the device tests in `hw-tests`.

use crate::transport::work_request::EndpointId;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Probes {
    /// Time between two probes; zero: no probes.
    interval: Duration,
    due: Duration,
}

impl Probes {
    pub(crate) fn new(interval: Duration) -> Self {
        Self { interval, due: interval }
    }

    /// Whether a probe is due, `now` after the port's start. Once true, false until the interval is over.
    pub(crate) fn are_due(&mut self, now: Duration) -> bool {
        if self.interval.is_zero() || now < self.due {
            return false;
        }
        self.due = now + self.interval;
        true
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_due_once_per_interval_and_never_without_one() {
        assert!(!Probes::new(Duration::ZERO).are_due(Duration::from_hours(1)));
        let mut probes = Probes::new(Duration::from_secs(2));
        let due = [1, 2, 3, 4, 5].map(|second| probes.are_due(Duration::from_secs(second)));
        assert_eq!(due, [false, true, false, true, false]);
    }

    #[test]
    fn a_parted_peer_is_probed_after_one_second_and_after_pauses_that_double_up_to_a_minute() {
        let mut parted = Parted::new(EndpointId::from_index(0), Duration::ZERO);
        let due: Vec<u64> = (0..256).filter(|second| parted.is_due(Duration::from_secs(*second))).collect();
        assert_eq!(due, [1, 3, 7, 15, 31, 63, 127, 191, 255]);
    }
}
