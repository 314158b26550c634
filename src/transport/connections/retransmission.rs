// SPDX-License-Identifier: MIT OR Apache-2.0
//! The acknowledgement time-out and the number of retries of a connection.
//!
//! Owns [`Retransmission`] and its choice. Called by `port/establish.rs` when a connection is confirmed and its round
//! trip known; printed by `failure.rs` and in verbose messages. A packet lost at the end of a message costs one
//! time-out, so the time-out should be short. But an adapter retries at most seven times, so a link that is silent for
//! eight time-outs ends the connection, and with it the job. `btl_ibex_link_outage` says how long a link may be silent;
//! the time-out is the shortest that satisfies it, but never less than the path needs. Setup grade. Tests: below.

use crate::tunables::Tunables;
use std::fmt;
use std::time::Duration;

/// Shortest time-out that adapters observe: 1.05 ms. For smaller values they take longer ones anyway.
const FLOOR: u8 = 8;
/// Longest time-out for a measured round trip: 1.07 s. A longer round trip means that the peer computed.
const CEILING: u8 = 18;
/// Number of retries: the most there is. soft-RoCE takes 7 as "without limit" (`rxe_comp.c`), not as seven like the
/// specification. A silent peer would never fail there, so it gets one less.
const RETRIES: u8 = 7;
/// Least number of round trips in a time-out: an acknowledgement waits behind the packets of others.
const ROUND_TRIPS: u32 = 16;

/// How an adapter waits for acknowledgements.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub struct Retransmission {
    /// The time-out is 4.096 us * 2^`exponent`.
    pub exponent: u8,
    /// Number of times that a packet is repeated.
    pub retries: u8,
}

impl Retransmission {
    /// Returns the user's values, or those that suit a path whose round trip takes at most `round_trip`.
    #[must_use]
    pub fn choose(tunables: &Tunables, software: bool, round_trip: Option<Duration>) -> Retransmission {
        let retries = if software { RETRIES - 1 } else { RETRIES };
        if tunables.ack_timeout > 0 {
            return Retransmission { exponent: tunables.ack_timeout as u8, retries };
        }
        let path = round_trip.map_or(CEILING, |time| exponent(time * ROUND_TRIPS).min(CEILING));
        let outage = Duration::from_millis(tunables.link_outage) / (u32::from(retries) + 1);
        Retransmission { exponent: exponent(outage).max(path).max(FLOOR), retries }
    }

    /// Returns the time-out. Adapters wait at least that long, and up to four times as long.
    #[must_use]
    pub fn timeout(self) -> Duration {
        Duration::from_nanos(4096 << self.exponent)
    }

    /// Returns the shortest silence of the peer after which the adapter gives up.
    #[must_use]
    pub fn total(self) -> Duration {
        self.timeout() * (u32::from(self.retries) + 1)
    }
}

impl fmt::Display for Retransmission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Retransmission { exponent, retries } = self;
        write!(f, "{} times {:.3?} (2^{exponent} * 4.096 us)", retries + 1, self.timeout())
    }
}

/// Returns the smallest exponent whose time-out is at least `time`, at most 31.
fn exponent(time: Duration) -> u8 {
    (0..31).find(|exponent| Duration::from_nanos(4096 << exponent) >= time).unwrap_or(31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(tunables: &Tunables, round_trip: u64) -> Retransmission {
        Retransmission::choose(tunables, false, Some(Duration::from_micros(round_trip)))
    }

    #[test]
    fn by_default_a_lost_packet_costs_a_quarter_of_a_second_and_two_seconds_of_silence_are_borne() {
        for round_trip in [0, 3, 50, 5000] {
            let retransmission = chosen(&Tunables::default(), round_trip);
            assert_eq!(retransmission, Retransmission { exponent: 16, retries: 7 }, "{round_trip} us");
            assert_eq!(retransmission.timeout().as_millis(), 268);
            assert!(retransmission.total() >= Duration::from_secs(2));
        }
        let software = Retransmission::choose(&Tunables::default(), true, Some(Duration::from_micros(50)));
        assert_eq!(software, Retransmission { exponent: 17, retries: 6 });
    }

    #[test]
    fn a_time_out_is_never_below_sixteen_round_trips_nor_below_what_an_adapter_keeps() {
        let tunables = Tunables { link_outage: 0, ..Tunables::default() };
        for round_trip in [0, 1, 10, 64, 65, 100, 1000, 10_000, 60_000] {
            let time = chosen(&tunables, round_trip).timeout();
            assert!(time >= Duration::from_micros(round_trip * 16), "{round_trip} us: {time:?}");
            assert!(time >= Duration::from_millis(1), "{round_trip} us: {time:?}");
            assert!(time <= Duration::from_micros((round_trip * 32).max(1100)), "{round_trip} us: {time:?}");
        }
    }

    #[test]
    fn a_peer_that_computed_before_it_answered_gives_no_longer_time_out_than_a_second() {
        for tunables in [Tunables::default(), Tunables { link_outage: 0, ..Tunables::default() }] {
            assert_eq!(chosen(&tunables, 3_600_000_000).exponent, 18);
            assert_eq!(Retransmission::choose(&tunables, false, None).exponent, 18);
        }
    }

    #[test]
    fn all_tries_together_last_as_long_as_a_link_may_be_out() {
        for link_outage in [1, 100, 2000, 5000, 20_000, 600_000] {
            let tunables = Tunables { link_outage, ..Tunables::default() };
            for software in [false, true] {
                let retransmission = Retransmission::choose(&tunables, software, Some(Duration::from_micros(20)));
                let outage = Duration::from_millis(link_outage);
                assert!(retransmission.total() >= outage, "{link_outage} ms: {retransmission}");
                let shorter = Retransmission { exponent: retransmission.exponent - 1, ..retransmission };
                let needed = shorter.total() < outage || retransmission.exponent == FLOOR;
                assert!(needed, "{link_outage} ms: {retransmission} is longer than needed");
            }
        }
    }

    #[test]
    fn a_value_that_is_set_is_taken_as_it_is() {
        let tunables = Tunables { ack_timeout: 3, ..Tunables::default() };
        assert_eq!(chosen(&tunables, 1_000_000), Retransmission { exponent: 3, retries: 7 });
    }

    #[test]
    fn it_is_shown_with_its_number_of_tries_and_the_time() {
        assert_eq!(Retransmission { exponent: 16, retries: 7 }.to_string(), "8 times 268.435ms (2^16 * 4.096 us)");
    }
}
