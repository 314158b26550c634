// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a send queue may say that it is full while nothing is in it.
//!
//! A full queue is an ordinary thing: a completion makes room. Where none is to come, an adapter that goes on to answer `ENOMEM`
//! has another trouble, and requests would wait for ever. Asked by `send.rs` for each post that was refused so; pending grade.
//! Tests: at the end of the file, and the device tests in `hw-tests`.

use crate::endpoint::Connection;
use std::time::Duration;

/// So often a queue may refuse requests while no completion is to come, and for so long: both must be over.
pub(crate) const ATTEMPTS: u32 = 1000;
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// The refusals of a queue, as long as nothing was posted in between.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// What [`Connection::posted`] was.
    posted: u32,
    count: u32,
    since: Duration,
}

impl Refusals {
    /// Notes one more, `now`. False when there were too many for too long.
    fn note(&mut self, posted: u32, now: Duration) -> bool {
        if self.count == 0 || self.posted != posted {
            *self = Refusals { posted, count: 0, since: now };
        }
        self.count += 1;
        self.count <= ATTEMPTS || now.saturating_sub(self.since) < PATIENCE
    }
}

impl Connection {
    /// Whether a request that the queue had no room for is to be tried again.
    pub(crate) fn may_find_room(&mut self, now: Duration) -> bool {
        // Of requests that asked for no completion none comes.
        let is_completion_due = self.is_completion_due();
        if is_completion_due {
            self.refusals = Refusals::default();
        }
        is_completion_due || self.refusals.note(self.posted, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_given_up_after_many_refusals_and_some_time_and_not_after_either_alone() {
        let moment = Duration::from_secs(7);
        let mut often = Refusals::default();
        assert!((0..10 * ATTEMPTS).all(|_| often.note(5, moment)), "no time has passed");
        assert!(!often.note(5, moment + PATIENCE));
        let mut long = Refusals::default();
        assert!((0..ATTEMPTS).all(|second| long.note(5, moment + Duration::from_secs(u64::from(second)))));
        assert!(!long.note(5, moment + Duration::from_secs(u64::from(ATTEMPTS))));
    }

    #[test]
    fn a_request_that_was_posted_in_between_begins_the_count_anew() {
        let mut refusals = Refusals::default();
        let at = |second| Duration::from_secs(second);
        assert!((0..=ATTEMPTS).all(|_| refusals.note(u32::MAX, at(1))));
        assert!(refusals.note(0, at(100)));
        assert!((0..ATTEMPTS - 1).all(|_| refusals.note(0, at(200))));
        assert!(!refusals.note(0, at(200)));
    }
}
