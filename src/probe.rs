// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probes: whether peers with whom nothing is under way still answer.
//!
//! A peer that is gone is an error only of what is sent to it. A rank that merely waits for one would wait for ever, where the
//! runtime does not end the job (`mpirun --enable-recovery`). Called by `connecting.rs` now and then, off unless
//! `btl_ibex_probe_interval` says how often. Grade: setup; one thread at a time (`&mut Port`). Tests: the device tests in
//! `hw-tests`.

use crate::endpoint::{Connection, State};
use crate::event::EndpointId;
use crate::port::Port;
use std::time::Duration;

/// When peers are next looked at.
#[derive(Debug)]
pub(crate) struct Probes {
    /// Time between two looks; zero: none.
    interval: Duration,
    due: Duration,
}

impl Probes {
    pub(crate) fn new(interval: Duration) -> Self {
        Self { interval, due: interval }
    }

    /// Whether it is time, `now` after the port's start. Once true, not again before the interval is over.
    fn are_due(&mut self, now: Duration) -> bool {
        if self.interval.is_zero() || now < self.due {
            return false;
        }
        self.due = now + self.interval;
        true
    }
}

impl Connection {
    /// Whether nothing was posted since the last look, and nothing posted before would tell that the peer is gone.
    fn is_idle(&self) -> bool {
        let asks_for_a_completion = self.in_flight() > 0 && self.unsignalled() == 0;
        self.state == State::Ready && self.pending.is_empty() && self.posted == self.looked_at && !asks_for_a_completion
    }
}

impl Port {
    /// Asks every peer that was idle since the last look for an acknowledgement: a peer that is gone fails the connection.
    #[cold]
    pub(crate) fn probe(&mut self, now: Duration) {
        if !self.connector.probes.are_due(now) {
            return;
        }
        for index in 0..self.endpoints.len() as u32 {
            let peer = EndpointId::from_index(index);
            if self.connection(peer).is_some_and(Connection::is_idle) {
                self.post_nothing(peer);
            }
        }
        self.work_backlog();
        for connection in self.endpoints.iter_mut().filter_map(|endpoint| endpoint.connection.as_deref_mut()) {
            connection.looked_at = connection.posted;
        }
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
