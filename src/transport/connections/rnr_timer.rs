// SPDX-License-Identifier: MIT OR Apache-2.0
//! The "receiver not ready" timer: how long a peer waits when its message finds no receive slot.
//!
//! The receiver sets the timer in its queue pair (`port/establish.rs`), and its adapter sends it to the peer with each
//! such answer. It cannot change while this process computes. Meanwhile each peer resends its oldest message once per
//! timer period, so the adapter refuses (peers / timer) messages per second. The timer of each new connection therefore
//! grows with the number of connections: the k-th gets k / [`PER_SECOND`]. Earlier ones keep theirs, so n sending
//! connections are refused at most [`PER_SECOND`] * (1 + ln(n / 3)) times per second: 16 connections 11000 times, 100
//! connections 20000 times. Setup grade. Tests: below.

use std::time::Duration;

/// Target rate of refused messages per second. A compromise: each refusal discards the peer's further messages, 2 to
/// 5 us of the link, so 5000 per second waste 1% to 2.5% of it, and 20000 waste 4% to 10%. But a receiver that polls
/// again also waits for its peers' retries, each with a send queue of at most 128 messages: 5000 retries per second
/// bring 640000 messages, about as many as an MPI process can take.
const PER_SECOND: u32 = 5_000;

/// Range of timers. The shortest, 0.64 ms, is a few times what a polling receiver needs to give back a batch of slots,
/// and suits three connections. The longest, 41 ms, suits 204; an even longer timer would leave the peers idle long
/// after the receiver is back.
const SHORTEST: u8 = 12;
const LONGEST: u8 = 24;

/// Times of the codes, in units of 10 us (InfiniBand specification, table 46).
const TENS_OF_MICROSECONDS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
    6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// The specification's code of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RnrTimer(u8);

impl RnrTimer {
    /// Returns the timer for a port's new connection, `connections` with this one.
    pub(crate) fn of(connections: usize) -> Self {
        let suits = |code: &u8| RnrTimer(*code).time() >= Duration::from_secs(1) / PER_SECOND * connections as u32;
        RnrTimer((SHORTEST..LONGEST).find(suits).unwrap_or(LONGEST))
    }

    pub(crate) fn code(self) -> u8 {
        self.0
    }

    pub(crate) fn time(self) -> Duration {
        Duration::from_micros(10 * u64::from(TENS_OF_MICROSECONDS[usize::from(self.0) % TENS_OF_MICROSECONDS.len()]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_connections_have_a_short_timer_and_many_a_longer_one() {
        assert!((0..=3).all(|connections| RnrTimer::of(connections).code() == 12));
        let timers = [4, 6, 16, 64, 100, 205, 5000].map(|connections| RnrTimer::of(connections).time().as_micros());
        assert_eq!(timers, [960, 1280, 3840, 15360, 20480, 40960, 40960]);
    }

    #[test]
    fn all_connections_together_are_turned_away_about_as_often_as_is_borne() {
        let mut a_second = 0.0;
        for connection in 1..=205_u32 {
            a_second += 1.0 / RnrTimer::of(connection as usize).time().as_secs_f64();
            let bound = f64::from(PER_SECOND) * (1.0 + (f64::from(connection) / 3.0).ln().max(0.0));
            assert!(a_second <= bound, "{connection} connections: {a_second:.0} times a second, more than {bound:.0}");
        }
    }
}
