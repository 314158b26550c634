// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accepts or refuses hellos, and reports refusals. Called by `connect.rs` for each packet of the carriers, which have
//! checked its seal (`select/key.rs`). Only processes of the job can make the seal, so a stranger cannot cause a modex
//! look-up, which may have to ask another host. The host may admit a process that has the key and no entry. Grade:
//! setup. Threads: the port's. Tests: below, and `hw-tests`.

use super::Port;
use crate::connect::Refusal;
use crate::connect::hello::Hello;
use crate::counters::add;
use crate::select::address::PortEntry;
use crate::transport::adapter::Adapter;
use crate::transport::work_request::EndpointId;
use std::time::Duration;

/// Pause after a failed modex look-up. A peer repeats its hello.
const LOOKUP_PAUSE: Duration = Duration::from_secs(1);

bitflags::bitflags! {
    /// Messages that a verbose user gets once.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub(super) struct Once: u8 {
        /// Bytes arrived that are no hello for this port.
        const UNREADABLE = 1;
        /// A hello named a port that no process has published.
        const NOT_IN_JOB = 2;
        /// A hello named another instance of a port.
        const OTHER_INSTANCE = 4;
        /// A connection that a peer began could not be made.
        const NOT_MADE = 8;
        /// A peer answered with another port than the one that addresses pair.
        const OTHER_PARTNER = 16;
    }
}

/// Limits for unknown senders: the rate of modex look-ups for names in hellos, and the messages about them.
#[derive(Debug, Default)]
pub(super) struct Admission {
    /// Time of the next look-up at the earliest.
    next_lookup: Duration,
    said: Once,
}

impl Admission {
    pub(super) fn may_look_up(&self, now: Duration) -> bool {
        now >= self.next_lookup
    }

    pub(super) fn was_in_vain(&mut self, now: Duration) {
        self.next_lookup = now + LOOKUP_PAUSE;
    }

    /// Whether this is the first message of its kind.
    pub(super) fn is_first(&mut self, kind: Once) -> bool {
        let is_first = !self.said.contains(kind);
        self.said.insert(kind);
        is_first
    }
}

#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Stranger {
    /// The modex has no such process, or no such port of it.
    NotInJob,
    /// The modex has another instance of that port.
    OtherInstance,
    /// A modex look-up failed a moment ago, and the next must wait.
    NotNow,
    /// The connection to that port has failed before.
    Failed,
    /// The endpoint is connected, or being connected, to another port of its process.
    Elsewhere,
}

impl<A: Adapter> Port<A> {
    /// Returns an endpoint and the modex entry for the port of a hello, which has no endpoint yet, or one without a
    /// connection.
    pub(super) fn admit(&mut self, hello: &Hello) -> Result<(EndpointId, PortEntry), Stranger> {
        let source = hello.source;
        let known = self.connections.known(source.name, source.port);
        if known.is_some_and(|known| self.failure(known).is_some()) {
            return Err(Stranger::Failed);
        }
        let entry = self.listed(hello)?;
        Ok((known.unwrap_or_else(|| self.peer(source.name, source.port)), entry))
    }

    pub(super) fn listed(&mut self, hello: &Hello) -> Result<PortEntry, Stranger> {
        let source = hello.source;
        if !self.admission.may_look_up(self.adapter.now()) {
            return Err(Stranger::NotNow);
        }
        let given = PortEntry { address: source.address, key: source.key };
        let entry = self.directory.entry(source.name, source.port);
        let found = match entry {
            None if self.directory.admits(source.name, source.port, given) => Ok(given),
            None => Err(Stranger::NotInJob),
            Some(entry) if entry.address.instance != source.address.instance => Err(Stranger::OtherInstance),
            // The address may have changed since the port published it.
            Some(entry) => Ok(PortEntry { address: source.address, ..entry }),
        };
        if found.is_err() {
            // Measured from now: the look-up may have taken long.
            self.admission.was_in_vain(self.adapter.now());
        }
        found
    }

    /// Counts and reports a sealed hello that is not accepted.
    pub(super) fn turn_away(&mut self, hello: &Hello, why: Stranger) {
        add(&self.counters.handshakes_dropped, 1);
        let (once, reason) = match why {
            Stranger::NotInJob => (Once::NOT_IN_JOB, "which has published no such port"),
            Stranger::OtherInstance => (Once::OTHER_INSTANCE, "which has published another instance of that port"),
            Stranger::NotNow | Stranger::Failed | Stranger::Elsewhere => return,
        };
        let source = hello.source;
        self.print_once(once, || {
            format!(
                "a handshake packet that is sealed with this port's key names port {} of rank {} ({}), {reason}: refused",
                source.port, source.name.rank, source.name
            )
        });
    }

    /// Counts and reports bytes that are no hello for this port.
    pub(super) fn refuse(&mut self, refusal: &Refusal) {
        add(&self.counters.handshakes_dropped, 1);
        let from = refusal.from.map_or_else(|| "as a datagram".to_owned(), |from| format!("over TCP from {from}"));
        self.print_once(Once::UNREADABLE, || format!("refused what came {from}: {}", refusal.why));
    }

    /// Prints a verbose line, once for each kind.
    pub(super) fn print_once(&mut self, once: Once, line: impl FnOnce() -> String) {
        if self.directory.verbosity() > 0 && self.admission.is_first(once) {
            self.directory.print(&format!("{}: {} (said once; btl_ibex_verbose)", self.attributes.place(), line()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_failed_lookup_there_is_none_for_a_second() {
        let mut admission = Admission::default();
        let at = Duration::from_millis;
        assert!(admission.may_look_up(at(0)));
        admission.was_in_vain(at(500));
        assert_eq!([1499, 1500].map(|time| admission.may_look_up(at(time))), [false, true]);
    }

    #[test]
    fn each_kind_of_line_is_printed_once() {
        let mut admission = Admission::default();
        assert!(admission.is_first(Once::NOT_MADE) && admission.is_first(Once::UNREADABLE));
        assert!(!admission.is_first(Once::NOT_MADE));
    }
}
