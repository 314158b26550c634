// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probes of idle peers. A dead peer shows only when a request to it fails. If the runtime does not end the job
//! (`mpirun --enable-recovery`), a rank that merely waits for a dead peer would wait for ever. `port/connect.rs` checks
//! whether probes are due; off unless `btl_ibex_probe_interval` is set. Setup grade. Threads: the port's. Tests: the
//! device tests in `hw-tests`.

use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Probes {
    /// Time between two probes; zero: none.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_of_zero_never_comes_due() {
        assert!(!Probes::new(Duration::ZERO).are_due(Duration::from_hours(1)));
    }

    #[test]
    fn probes_come_due_once_an_interval() {
        let mut probes = Probes::new(Duration::from_secs(2));
        let due = [1, 2, 3, 4, 5].map(|second| probes.are_due(Duration::from_secs(second)));
        assert_eq!(due, [false, true, false, true, false]);
    }
}
