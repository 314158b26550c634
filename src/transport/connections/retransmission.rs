// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connection's acknowledgement time-out and number of retries, and its "receiver not ready" timer.
//!
//! Owns [`Retransmission`] and its choice. Called by `port/establish.rs` when a connection is confirmed and its round
//! trip known; printed by `failure.rs` and in verbose messages. A packet lost at the end of a message costs one
//! time-out, so the time-out should be short. But an adapter retries at most seven times, so a link that is silent for
//! eight time-outs ends the connection, and with it the job. `btl_ibex_link_outage` says how long a link may be silent;
//! the time-out is the shortest that satisfies it, but never less than the path needs. Grade: setup. Tests: below.

use crate::tunables::Tunables;
use std::fmt;
use std::time::Duration;

/// Shortest time-out that adapters observe: 1.05 ms. If it is set shorter, they wait longer anyway.
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
    pub fn timeout(self) -> Duration {
        Duration::from_nanos(4096 << self.exponent)
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

/// Target rate of refused messages per second. A compromise: each refusal discards the peer's further messages, 2 to
/// 5 us of the link, so 5000 per second waste 1% to 2.5% of it, and 20000 waste 4% to 10%. But a receiver that polls
/// again also waits for its peers' retries, each with a send queue of at most 128 messages: 5000 retries per second
/// bring 640000 messages, about as many as an MPI process can take.
const PER_SECOND: u32 = 5_000;

/// Range of "receiver not ready" timers. The shortest, 0.64 ms, is a few times what a polling receiver needs to give
/// back a batch of slots, and suits three connections. The longest, 41 ms, suits 204; an even longer timer would leave
/// the peers idle long after the receiver is back.
const SHORTEST_TIMER: u8 = 12;
const LONGEST_TIMER: u8 = 24;

/// Times of the codes, in units of 10 us (InfiniBand specification, 9.7.5.2.8).
const TENS_OF_MICROSECONDS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
    6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// The "receiver not ready" timer, in the specification's code: how long a peer waits if its message finds no slot.
///
/// The receiver sets the timer in its queue pair, and its adapter sends it to the peer with each such answer. It cannot
/// change while this process computes. Meanwhile each peer resends its oldest message once per timer period, so the
/// adapter refuses (peers / timer) messages per second. The timer of each new connection therefore grows with the
/// number of connections: the k-th gets k / [`PER_SECOND`]. Earlier ones keep theirs, so n sending connections are
/// refused at most [`PER_SECOND`] * (1 + ln(n / 3)) times per second: 16 connections 11000 times, 100 ones 20000 times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RnrTimer(u8);

impl RnrTimer {
    /// Returns the timer for a port's new connection, `connections` with this one.
    pub(crate) fn of(connections: usize) -> Self {
        let suits = |code: &u8| RnrTimer(*code).time() >= Duration::from_secs(1) / PER_SECOND * connections as u32;
        RnrTimer((SHORTEST_TIMER..LONGEST_TIMER).find(suits).unwrap_or(LONGEST_TIMER))
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

    fn chosen(tunables: &Tunables, round_trip: u64) -> Retransmission {
        Retransmission::choose(tunables, false, Some(Duration::from_micros(round_trip)))
    }

    /// The shortest silence of the peer after which the adapter gives up.
    fn total(of: Retransmission) -> Duration {
        of.timeout() * (u32::from(of.retries) + 1)
    }

    #[test]
    fn by_default_a_lost_packet_costs_a_quarter_of_a_second_and_a_connection_survives_two_seconds_of_silence() {
        for round_trip in [0, 3, 50, 5000] {
            let retransmission = chosen(&Tunables::default(), round_trip);
            assert_eq!(retransmission, Retransmission { exponent: 16, retries: 7 }, "{round_trip} us");
            assert_eq!(retransmission.timeout().as_millis(), 268);
            assert!(total(retransmission) >= Duration::from_secs(2));
        }
        let software = Retransmission::choose(&Tunables::default(), true, Some(Duration::from_micros(50)));
        assert_eq!(software, Retransmission { exponent: 17, retries: 6 });
    }

    #[test]
    fn a_time_out_is_at_least_sixteen_round_trips_and_the_shortest_of_an_adapter() {
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
    fn all_tries_together_last_as_long_as_a_link_may_be_silent() {
        for link_outage in [1, 100, 2000, 5000, 20_000, 600_000] {
            let tunables = Tunables { link_outage, ..Tunables::default() };
            for software in [false, true] {
                let retransmission = Retransmission::choose(&tunables, software, Some(Duration::from_micros(20)));
                let outage = Duration::from_millis(link_outage);
                assert!(total(retransmission) >= outage, "{link_outage} ms: {retransmission}");
                let shorter = Retransmission { exponent: retransmission.exponent - 1, ..retransmission };
                let needed = total(shorter) < outage || retransmission.exponent == FLOOR;
                assert!(needed, "{link_outage} ms: {retransmission} is longer than needed");
            }
        }
    }

    #[test]
    fn choose_takes_the_users_values_unchanged() {
        let tunables = Tunables { ack_timeout: 3, ..Tunables::default() };
        assert_eq!(chosen(&tunables, 1_000_000), Retransmission { exponent: 3, retries: 7 });
    }

    #[test]
    fn few_connections_have_a_short_timer_and_many_a_longer_one() {
        assert!((0..=3).all(|connections| RnrTimer::of(connections).code() == 12));
        let timers = [4, 6, 16, 64, 100, 205, 5000].map(|connections| RnrTimer::of(connections).time().as_micros());
        assert_eq!(timers, [960, 1280, 3840, 15360, 20480, 40960, 40960]);
    }

    #[test]
    fn all_connections_together_get_about_as_many_rnr_naks_as_the_port_tolerates() {
        let mut a_second = 0.0;
        for connection in 1..=205_u32 {
            a_second += 1.0 / RnrTimer::of(connection as usize).time().as_secs_f64();
            let bound = f64::from(PER_SECOND) * (1.0 + (f64::from(connection) / 3.0).ln().max(0.0));
            assert!(a_second <= bound, "{connection} connections: {a_second:.0} times a second, more than {bound:.0}");
        }
    }
}
