// SPDX-License-Identifier: MIT OR Apache-2.0
//! The send window: the number of unacknowledged requests that a peer may have. That is as many as the queue pair
//! takes, but fewer for a peer that has acknowledged nothing for long.
//!
//! A peer that computes takes no message once its receive slots are used up. The adapter then resends the oldest
//! message, and everything posted after it, each time that the peer answers "not ready". So a peer that has
//! acknowledged nothing for [`PATIENCE`] is *held back*: the port posts nothing more to it until it has acknowledged
//! all but a quarter of a queue. Then its window is a quarter of a queue, 32 requests by default, which still keeps a
//! path busy: 32 messages in a round trip of 5 us are six million a second. The window grows by one request each time
//! that the peer has acknowledged a whole window: slowly, as a process that has computed once will compute again.
//!
//! Part of a send queue (`send_queue.rs`), which takes its limit from [`SendWindow::size`]. Grade: hot for that, else
//! pending, for peers with waiting requests. Tests: below, `tests.rs`, `port/tests/held_back.rs`.

use std::time::Duration;

/// Longest time without an acknowledgement before a peer is held back: eight times the shortest "receiver not ready"
/// timer, and above the delays of a busy network. A silent link or long one-sided requests hold it back, too.
const PATIENCE: Duration = Duration::from_millis(5);

/// Longest time between two looks that counts towards [`PATIENCE`]: a process that has computed has not yet seen its
/// peers' acknowledgements.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// Whether the peer is held back from now on.
    pub(super) begins: bool,
    /// Time since the last look, if the peer was held back; else zero.
    pub(super) time: Duration,
}

#[derive(Debug)]
pub(super) struct SendWindow {
    size: u32,
    depth: u32,
    /// Number of retired requests at the last look, and the time for which it has been the same; `None` if no
    /// completion was due.
    stood: Option<(u32, Duration)>,
    /// Number of retired requests when the size last changed.
    changed_at: u32,
    is_held: bool,
    looked: Duration,
}

impl SendWindow {
    pub(super) fn new(depth: u32) -> Self {
        SendWindow { size: depth, depth, stood: None, changed_at: 0, is_held: false, looked: Duration::ZERO }
    }

    /// Most requests in flight. Hot.
    #[inline]
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// Checks a peer with waiting requests at `now`, when the requests before `retired` are done. `is_due`: a
    /// completion is due; unsignalled requests prove nothing. One of `signal_interval` requests is signalled, so a
    /// window of that size is never full of unsignalled requests.
    pub(super) fn look(&mut self, retired: u32, is_due: bool, signal_interval: u32, now: Duration) -> Held {
        let passed = now.saturating_sub(std::mem::replace(&mut self.looked, now));
        let time = if self.is_held { passed } else { Duration::ZERO };
        let Some((_, stood)) = self.stood.as_mut().filter(|(done, _)| is_due && *done == retired) else {
            self.stood = is_due.then_some((retired, Duration::ZERO));
            self.is_held = false;
            if retired.wrapping_sub(self.changed_at) >= self.size {
                self.resize(self.size + 1, retired);
            }
            return Held { begins: false, time };
        };
        *stood += passed.min(BETWEEN_LOOKS);
        let begins = !self.is_held && *stood >= PATIENCE;
        if begins {
            self.is_held = true;
            self.resize((self.depth / 4).max(signal_interval), retired);
        }
        Held { begins, time }
    }

    fn resize(&mut self, size: u32, retired: u32) {
        (self.size, self.changed_at) = (size.min(self.depth), retired);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Looks every millisecond from `from` to `to`, both included, without an acknowledgement. Returns the last result.
    fn stand(window: &mut SendWindow, (from, to): (u64, u64)) -> Held {
        (from..=to).map(|now| window.look(7, true, 32, at(now))).last().expect("a look")
    }

    fn held() -> SendWindow {
        let mut window = SendWindow::new(128);
        assert_eq!(stand(&mut window, (0, 4)), Held::default());
        assert_eq!(window.size(), 128, "not yet for long");
        assert_eq!(stand(&mut window, (5, 5)), Held { begins: true, time: at(0) });
        window
    }

    #[test]
    fn a_peer_that_takes_nothing_for_long_may_have_a_quarter_of_the_queue_unacknowledged() {
        assert_eq!(held().size(), 32);
    }

    #[test]
    fn a_process_that_has_computed_does_not_take_its_peers_for_silent() {
        let mut window = SendWindow::new(128);
        window.look(7, true, 32, at(0));
        assert_eq!(window.look(7, true, 32, at(10_000)), Held::default());
        assert_eq!(window.look(7, true, 32, at(10_003)), Held::default());
        assert_eq!(stand(&mut window, (10_004, 10_006)), Held { begins: true, time: at(0) });
    }

    #[test]
    fn a_window_is_never_so_small_that_all_in_it_may_have_asked_for_no_completion() {
        for (depth, size) in [(64, 32), (16, 16), (1024, 256)] {
            let mut window = SendWindow::new(depth);
            assert!(stand(&mut window, (0, 5)).begins);
            assert_eq!(window.size(), size);
        }
    }

    #[test]
    fn look_reports_the_time_of_a_hold_once_and_an_acknowledgement_ends_it() {
        let mut window = held();
        assert_eq!(window.look(7, true, 32, at(9)), Held { begins: false, time: at(4) });
        assert_eq!(window.look(8, true, 32, at(10)), Held { begins: false, time: at(1) });
        assert_eq!(stand(&mut window, (20, 24)), Held::default());
        assert_eq!(stand(&mut window, (25, 25)), Held { begins: true, time: at(0) });
    }

    #[test]
    fn the_window_grows_by_one_each_time_the_peer_has_acknowledged_a_whole_window() {
        let mut window = held();
        let mut look = |retired| {
            assert!(!window.look(retired, true, 32, at(6)).begins);
            window.size()
        };
        assert_eq!([7 + 31, 7 + 32, 7 + 32 + 32, 7 + 32 + 33].map(&mut look), [32, 33, 33, 34]);
        assert_eq!((73..20_000).map(look).last(), Some(128));
    }

    #[test]
    fn the_window_holds_back_no_peer_without_a_due_completion() {
        let mut window = SendWindow::new(128);
        for second in 0..10 {
            assert_eq!(window.look(7, false, 32, at(1000 * second)), Held::default());
        }
        // A completion that is due from now on belongs to a request posted now.
        assert_eq!((stand(&mut window, (20_000, 20_004)), window.size()), (Held::default(), 128));
    }
}
