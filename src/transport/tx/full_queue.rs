// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a send queue may claim to be full while no request is in flight. A full queue is normal: a completion makes
//! room. But if no completion is due, an adapter that keeps answering `ENOMEM` has another problem, and requests would
//! wait for ever. Called for each post that was refused so (`send_queue.rs`); pending grade. Tests: below.

use std::time::Duration;

/// The queue is given up when both are exceeded without a completion due.
pub(crate) const ATTEMPTS: u32 = 1000;
pub(crate) const LEAST_TIME: Duration = Duration::from_secs(3);

/// Count of consecutive "queue full" answers, without a posted request in between.
#[derive(Debug, Default)]
pub(crate) struct QueueFull {
    /// Number of requests posted before.
    posted: u32,
    count: u32,
    since: Duration,
}

impl QueueFull {
    /// Counts one more answer at `now`. False if there were too many for too long.
    pub(super) fn note(&mut self, posted: u32, now: Duration) -> bool {
        if self.count == 0 || self.posted != posted {
            *self = QueueFull { posted, count: 0, since: now };
        }
        self.count += 1;
        self.count <= ATTEMPTS || now.saturating_sub(self.since) < LEAST_TIME
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_given_up_after_many_answers_and_some_time_and_not_after_either_alone() {
        let moment = Duration::from_secs(7);
        let mut often = QueueFull::default();
        assert!((0..10 * ATTEMPTS).all(|_| often.note(5, moment)), "no time has passed");
        assert!(!often.note(5, moment + LEAST_TIME));
        let mut long = QueueFull::default();
        assert!((0..ATTEMPTS).all(|second| long.note(5, moment + Duration::from_secs(u64::from(second)))));
        assert!(!long.note(5, moment + Duration::from_secs(u64::from(ATTEMPTS))));
    }

    #[test]
    fn a_request_that_was_posted_in_between_begins_the_count_anew() {
        let mut answers = QueueFull::default();
        let at = |second| Duration::from_secs(second);
        assert!((0..=ATTEMPTS).all(|_| answers.note(u32::MAX, at(1))));
        assert!(answers.note(0, at(100)));
        assert!((0..ATTEMPTS - 1).all(|_| answers.note(0, at(200))));
        assert!(!answers.note(0, at(200)));
    }
}
