// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits for unknown senders: the rate of modex look-ups for names in hellos, and the messages about them. Owned by
//! the port, asked by `port/admission.rs`. Setup grade. Tests: below.

use std::time::Duration;

/// Pause after a failed modex look-up. A peer repeats its hello.
const LOOKUP_PAUSE: Duration = Duration::from_secs(1);

bitflags::bitflags! {
    /// Messages that a verbose user gets once.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Once: u8 {
        /// Bytes arrived that are no hello for this port.
        const UNREADABLE = 1;
        /// A hello named a port that no process has published.
        const NOT_IN_JOB = 2;
        /// A hello named another instance of a port.
        const OTHER_INSTANCE = 4;
        /// A connection that a peer began was not made.
        const NOT_MADE = 8;
        /// A peer answered with another port than the one that addresses pair.
        const OTHER_PARTNER = 16;
    }
}

#[derive(Debug)]
pub(crate) struct Admission {
    /// Time of the next look-up at the earliest.
    next_lookup: Duration,
    said: Once,
}

impl Admission {
    pub(crate) fn new() -> Self {
        Admission { next_lookup: Duration::ZERO, said: Once::empty() }
    }

    pub(crate) fn may_look_up(&self, now: Duration) -> bool {
        now >= self.next_lookup
    }

    pub(crate) fn was_in_vain(&mut self, now: Duration) {
        self.next_lookup = now + LOOKUP_PAUSE;
    }

    /// Whether this is the first message of its kind.
    pub(crate) fn is_first(&mut self, kind: Once) -> bool {
        let is_first = !self.said.contains(kind);
        self.said.insert(kind);
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_lookup_in_vain_there_is_none_for_a_second() {
        let mut admission = Admission::new();
        let at = Duration::from_millis;
        assert!(admission.may_look_up(at(0)));
        admission.was_in_vain(at(500));
        assert_eq!([1499, 1500].map(|time| admission.may_look_up(at(time))), [false, true]);
    }

    #[test]
    fn each_kind_of_line_is_said_once() {
        let mut admission = Admission::new();
        assert!(admission.is_first(Once::NOT_MADE) && admission.is_first(Once::UNREADABLE));
        assert!(!admission.is_first(Once::NOT_MADE));
    }
}
